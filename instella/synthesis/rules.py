"""Teacher ``rules``: small, deterministic, for problems whose solution shows its arithmetic.

It takes the four steps on real text, in the form of GSM8K: a solution marks each
calculation as ``<<12*4=48>>48``. The numbers of the question become parameters; each number
of a calculation is traced to a parameter, to an earlier result, or stays a constant; that
gives the program, and the same tracing writes the solution again with new values. Where a
number cannot be traced for sure the teacher says nothing, and the reply is rejected like
any other bad one.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from instella.data.select import keyed_share
from instella.synthesis import quantities
from instella.synthesis.interpreter import FAILURES, run
from instella.synthesis.language import Refused
from instella.synthesis.replies import Row, fill

CALCULATION = re.compile(r"<<([^<>=]{1,200})=([^<>=]{1,40})>>")
_FINAL = re.compile(r"\s*####.*\Z", re.DOTALL)
_ARITHMETIC = re.compile(r"[0-9.,+\-*/() ]+")
_DECIMAL_STEPS = 100


@dataclass(frozen=True)
class Trace:
    """A solution understood: the calculations in terms of names, and each result's value."""

    lines: tuple[str, ...]
    results: tuple[Fraction, ...]


class RulesTeacher:
    """Answers by the rules above; keeps no record, since it says the same again.

    Args:
        seed: of the new values.
    """

    connections = 1

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def close(self) -> None:
        """Nothing is open."""

    def abstract(self, problem: Row, attempt: int, temperature: float, log: list[str]) -> str:
        """Each number of the question is a parameter ``n1``, ``n2``, ..."""
        parameters: list[Row] = []

        def name(match: re.Match[str]) -> str:
            value = quantities.parse(match.group())
            whole = value.denominator == 1
            parameters.append(
                {
                    "name": f"n{len(parameters) + 1}",
                    "type": "int" if whole else "float",
                    "value": int(value) if whole else float(value),
                }
            )
            return f"{{{parameters[-1]['name']}}}"

        template = quantities.PATTERN.sub(name, problem["question"])
        return json.dumps({"template": template, "parameters": parameters}, ensure_ascii=False)

    def program(self, problem: Row, attempt: int, temperature: float, log: list[str]) -> str:
        """One line for each calculation of the known solution."""
        trace = _trace(problem)
        return "" if trace is None else f"```python\n{_source(problem, trace.lines)}```"

    def values(
        self, problem: Row, count: int, attempt: int, temperature: float, log: list[str]
    ) -> str:
        """Each value between about half and twice the old one, by a keyed hash."""
        key = f"{self._seed} {problem['key']} {attempt}"
        sets = []
        for number in range(count):
            sets.append(
                {
                    item["name"]: _draw(item["value"], f"{key} {number} {item['name']}")
                    for item in problem["parameters"]
                }
            )
        return json.dumps(sets)

    def reword(self, problem: Row, values: Row, temperature: float, log: list[str]) -> str:
        """The template with the new values."""
        return fill(problem["template"], values)

    def solve(
        self, item: Row, problem: Row, attempt: int, temperature: float, log: list[str]
    ) -> str:
        """The known solution with each number replaced by what it stands for."""
        trace = _trace(problem)
        if trace is None:
            return ""
        new = _results(problem, trace, item["values"])
        if new is None:
            return ""
        names = _named(problem)
        old = {parameter: (value, quantities.rounded(item["values"][parameter]))
               for parameter, value in names.items()}  # fmt: skip
        for number, pair in enumerate(zip(trace.results, new, strict=True), 1):
            old[f"s{number}"] = pair
        text = CALCULATION.sub("", _FINAL.sub("", problem["solution"]))
        rewritten = _replace(text, list(old.values()))
        return f"{rewritten}\nThe answer is {quantities.written(new[-1])}." if rewritten else ""


def _named(problem: Row) -> dict[str, Fraction]:
    return {item["name"]: quantities.rounded(item["value"]) for item in problem["parameters"]}


def _trace(problem: Row) -> Trace | None:
    """The calculations of a solution with names for numbers; None if one is not arithmetic."""
    known = _named(problem)
    used: set[str] = set()
    lines: list[str] = []
    results: list[Fraction] = []
    for expression, result in CALCULATION.findall(problem["solution"]):
        value = quantities.last_number(result)
        if not _ARITHMETIC.fullmatch(expression) or value is None:
            return None

        def name(match: re.Match[str]) -> str:
            found = _lookup(quantities.parse(match.group()), known, used)
            return found if found is not None else match.group().replace(",", "")

        lines.append(quantities.PATTERN.sub(name, expression))
        results.append(value)
        known[f"s{len(lines)}"] = value
    return Trace(tuple(lines), tuple(results)) if lines else None


def _lookup(value: Fraction, known: Mapping[str, Fraction], used: set[str]) -> str | None:
    """Who has this value: results before parameters, those not used before the others."""
    names = [name for name, other in known.items() if other == value]
    if not names:
        return None
    names.sort(key=lambda name: (name in used, name.startswith("n"), int(name[1:])))
    used.add(names[0])
    return names[0]


def _source(problem: Row, lines: tuple[str, ...]) -> str:
    names = ", ".join(item["name"] for item in problem["parameters"])
    body = [f"    s{number} = {line}" for number, line in enumerate(lines, 1)]
    return "\n".join([f"def solve({names}):", *body, f"    return s{len(lines)}", ""])


def _results(problem: Row, trace: Trace, values: Row) -> list[Fraction] | None:
    """Every result with new values; None where one is negative or cannot be computed."""
    results = []
    for count in range(1, len(trace.lines) + 1):
        try:
            value = run(_source(problem, trace.lines[:count]), values)
        except (Refused, *FAILURES):
            return None
        if value < 0:
            return None
        results.append(quantities.rounded(value))
    return results


def _replace(text: str, pairs: list[tuple[Fraction, Fraction]]) -> str | None:
    """Old numbers to new ones; None where an old one stands for different new ones."""
    choices: dict[Fraction, set[Fraction]] = {}
    for old, new in pairs:
        choices.setdefault(old, set()).add(new)
    doubtful = False

    def number(match: re.Match[str]) -> str:
        nonlocal doubtful
        new = choices.get(quantities.parse(match.group()))
        if new is None:
            return match.group()
        doubtful |= len(new) > 1
        return quantities.written(next(iter(new)))

    rewritten = quantities.PATTERN.sub(number, text)
    return None if doubtful else rewritten


def _draw(value: int | float, key: str) -> int | float:
    share = keyed_share(key)
    if isinstance(value, int):
        low, high = max(2, value // 2), 2 * value + 2
        return low + int(share * (high - low + 1))
    low, high = int(value * _DECIMAL_STEPS / 2), int(value * _DECIMAL_STEPS * 2)
    return (low + 1 + int(share * (high - low))) / _DECIMAL_STEPS
