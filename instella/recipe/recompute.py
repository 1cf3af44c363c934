"""What a recipe amounts to, recomputed and compared with what is published."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from instella.recipe.derived import (
    embedding_count,
    layer_parameter_count,
    parameter_count,
    tensor_count,
)
from instella.recipe.leaves import value_at
from instella.recipe.published import Derived, Figures, Protocols, Results, Table
from instella.recipe.settings import Model, Recipe

# A printed half, such as 0.005, is no binary number.
BINARY_FRACTION = 1e-9

_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?(e-?[0-9]+)?")

# Formulas over operands; the names are those that figures.yaml uses.
FORMULAS: dict[str, Callable[[Sequence[float]], float]] = {
    "value": lambda of: of[0],
    "product": math.prod,
    "sum": math.fsum,
    "difference": lambda of: of[0] - math.fsum(of[1:]),
    "quotient": lambda of: of[0] / math.prod(of[1:]),
    "whole_quotient": lambda of: of[0] // math.prod(of[1:]),
    "quotient_rounded_up": lambda of: -(-of[0] // math.prod(of[1:])),
    "percentage": lambda of: 100.0 * of[0] / of[1],
}

# Formulas over the network; they take no operands.
NETWORK_FORMULAS: dict[str, Callable[[Model], int]] = {
    "parameters": parameter_count,
    "parameters_without_embeddings": lambda model: parameter_count(model) - embedding_count(model),
    "parameters_of_a_layer": layer_parameter_count,
    "tensors": tensor_count,
}


def derived_mismatches(recipe: Recipe, figures: Figures) -> list[str]:
    """One line for each derived fact that does not come out as expected."""
    values = asdict(recipe)
    lines = []
    for name, fact in figures.derived.items():
        try:
            found = _result(fact, recipe, values, figures)
            wanted = _operand(fact.equals, values, figures)
        except KeyError as error:
            lines.append(f"derived.{name}: operand {error} is no number of the recipe or figures")
            continue
        except IndexError:
            lines.append(f"derived.{name}: expected more operands in {_formula(fact)}, found "
                         f"{len(fact.of)}")  # fmt: skip
            continue
        except ZeroDivisionError:
            lines.append(f"derived.{name}: expected no operand to be zero in {_formula(fact)}, "
                         "found one")  # fmt: skip
            continue
        if not abs(found - wanted) <= fact.tolerance:
            lines.append(
                f"derived.{name} ({fact.about}): expected {_shown(wanted)}, found "
                f"{_shown(found)} by {_formula(fact)}"
            )
    return lines


def _result(fact: Derived, recipe: Recipe, values: Any, figures: Figures) -> float:
    if fact.formula in NETWORK_FORMULAS:
        return NETWORK_FORMULAS[fact.formula](recipe.model)
    if fact.formula not in FORMULAS:
        raise KeyError(fact.formula)
    return FORMULAS[fact.formula]([_operand(name, values, figures) for name in fact.of])


def _operand(name: str, values: Any, figures: Figures) -> float:
    """A number written out, a figure, a setting, or the length of a list (``#path``).

    Raises:
        KeyError: there is none, or it is not a number.
    """
    if _NUMBER.fullmatch(name):
        return float(name)
    if name.startswith("figures."):
        return figures.figures[name.removeprefix("figures.")].value
    if name.startswith("#"):
        listed = value_at(values, name[1:])
        if not isinstance(listed, (list, tuple)):
            raise KeyError(name)
        return len(listed)
    value = value_at(values, name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise KeyError(name)
    return value


def _formula(fact: Derived) -> str:
    return f"{fact.formula}({', '.join(fact.of)})"


def _shown(number: float) -> str:
    return f"{number:,.0f}" if number == int(number) else f"{number:.10g}"


def table_mismatches(results: Results, protocols: Protocols) -> list[str]:
    """Printed averages that are not the mean of their row; benchmarks without a protocol."""
    lines = []
    for name, table in results.tables.items():
        lines += _average_mismatches(name, table)
        if table.suite is None:
            continue
        if table.suite not in protocols.suites:
            lines.append(f"results.json {name}: suite: expected one of evaluation.yaml's, found "
                         f"'{table.suite}'")  # fmt: skip
            continue
        known = protocols.suites[table.suite].tasks
        for model, scores in table.scores.items():
            lines += [
                f"results.json {name}: {model}: {benchmark}: expected a task of suite "
                f"{table.suite}, found none"
                for benchmark in scores
                if benchmark not in known
            ]
    return lines


def _average_mismatches(name: str, table: Table) -> list[str]:
    lines = []
    for model, printed in (table.averages or {}).items():
        scores = table.scores.get(model, {})
        row = [scores[item] for item in table.average_of if scores.get(item) is not None]
        if printed is None:
            continue
        if not row or len(row) < len(table.average_of):
            lines.append(f"results.json {name}: {model}: average: expected all its scores, found "
                         f"{len(row)} of {len(table.average_of)}")  # fmt: skip
            continue
        mean = math.fsum(row) / len(row)
        if abs(mean - printed) > table.tolerance + BINARY_FRACTION:
            lines.append(
                f"results.json {name}: {model}: average: expected {mean:.4f} by mean of "
                f"{len(row)} scores, found {printed}"
            )
    return lines
