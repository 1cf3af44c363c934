"""Published protocols, task by task: the files of ``suites/`` in a published folder.

``evaluation.yaml`` beside it names harness, task, metric, shots and items; these files add
prompt, examples, split, revision and limit, so that each task can be rebuilt or run, and
say ``unknown`` where no public source tells. Both have to agree (``faults``).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from instella.errors import BadUse
from instella.recipe.fields import FieldReader
from instella.recipe.published import Protocols, Published, Table
from instella.recipe.settings import setting
from instella.recipe.tree import read_tree

FOLDER = "suites"
SUITES = ("base", "instruct", "math", "ttt_bench")
UNKNOWN = "unknown"

# A printed half, such as 0.005, is no binary number.
_BINARY_FRACTION = 1e-9


@dataclass(frozen=True)
class Task:
    """One benchmark. Text that no public source gives is ``unknown``, a number null."""

    task: str = setting("name in the harness, variant included")
    prompt: str = setting("what stands before the answer, in words")
    shots: int = setting("worked examples in the prompt", at_least=0)
    examples: str = setting("where they come from")
    metric: str = setting("figure that was printed")
    about: str = setting("what the metric measures")
    dataset: str = setting("items")
    split: str = setting("of the data set")
    revision: str = setting("of the data set")
    limit: str = setting("most items that the harness takes; none for all")
    items: int | None = setting("number of items; null: unknown", at_least=1)
    counted: bool = setting("a score is a whole number of right items over all items")
    sources: tuple[str, ...] = setting("codes of the legend")
    argument: str | None = setting("name on the harness's command line, if another", default=None)
    command: tuple[str, ...] = setting("words of its own command line, if another", default=())
    image: str | None = setting("folder of containers/, if another", default=None)
    scale: tuple[float, ...] = setting("lowest and highest score", default=(0.0, 100.0))
    judged: bool = setting("a model behind an endpoint gives the marks", default=False)
    note: str = setting("what has to be known", default="")


@dataclass(frozen=True)
class Suite:
    """One file: tasks that one command measures."""

    table: str = setting("table of results.json that holds its scores")
    harness: str = setting("program")
    commit: str = setting("its state")
    command: tuple[str, ...] = setting("words of its command line, with {model}, {tasks} ...")
    sources: tuple[str, ...] = setting("codes of the legend")
    where: str = setting("file, line or table")
    judge: str = setting("who judges answers, if not a program")
    generation: dict[str, Any] = setting("sampling and limits")
    note: str = setting("what has to be known")
    digits: int = setting("decimals of a printed score", at_least=0)
    average: str = setting("what the printed average is the mean of")
    image: str = setting("folder of containers/ that holds the harness; none: no image does")
    tasks: dict[str, Task] = setting("benchmark as the table calls it -> protocol")


def read_suites(folder: Path) -> dict[str, Suite]:
    """The suites of a published folder, by name.

    Raises:
        BadUse: with file and line of the first fault.
    """
    suites = {}
    for name in SUITES:
        path = folder / FOLDER / f"{name}.yaml"
        suites[name] = FieldReader(str(path)).read(Suite, read_tree(path))
        for benchmark, task in suites[name].tasks.items():
            if len(task.scale) != 2 or not task.scale[0] < task.scale[1]:
                raise BadUse(f"{path}: {benchmark}: scale has to be [lowest, highest]")
    return suites


def task_of(suites: Mapping[str, Suite], table: str, benchmark: str) -> tuple[Suite, Task] | None:
    """Protocol of a column of a table, if a suite has it."""
    for suite in suites.values():
        if suite.table == table and benchmark in suite.tasks:
            return suite, suite.tasks[benchmark]
    return None


def unknowns(suite: Suite, task: Task) -> tuple[str, ...]:
    """Names of the fields that no public source gives."""
    fields = ("prompt", "examples", "split", "revision", "limit", "items")
    values = {name: getattr(task, name) for name in fields}
    missing = tuple(name for name, value in values.items() if value in (UNKNOWN, None))
    return missing + tuple(name for name, value in suite.generation.items() if value == UNKNOWN)


def command_line(suite: Suite, benchmarks: tuple[str, ...], values: Mapping[str, str]) -> list[str]:
    """The words of the harness's command for some of its tasks.

    Args:
        suite: whose command.
        benchmarks: columns to measure, as the table calls them.
        values: for each other placeholder its text; a text is never split into words.

    Raises:
        BadUse: a benchmark that the suite lacks, one with a command of its own among others,
            or a placeholder without a value.
    """
    unknown = [name for name in benchmarks if name not in suite.tasks]
    if unknown:
        raise BadUse(f"{unknown[0]}: no task of the suite; choose from {', '.join(suite.tasks)}")
    named = [suite.tasks[name].argument or suite.tasks[name].task for name in benchmarks]
    alone = [name for name in benchmarks if suite.tasks[name].command]
    if alone and len(benchmarks) > 1:
        raise BadUse(f"{alone[0]}: has a command of its own; ask for it alone")
    line = []
    for word in suite.tasks[alone[0]].command if alone else suite.command:
        if word == "{tasks}":
            line += named
        elif word.startswith("{") and word.endswith("}"):
            if word[1:-1] not in values:
                raise BadUse(f"command of {suite.harness}: give a value for {word[1:-1]}")
            line.append(values[word[1:-1]])
        else:
            line.append(word)
    return line


def image_of(suite: Suite, benchmarks: tuple[str, ...]) -> str:
    """Folder of ``containers/`` that holds the harness of tasks of one suite.

    Raises:
        BadUse: no image holds it.
    """
    name = suite.tasks[benchmarks[0]].image or suite.image
    if name == "none":
        raise BadUse(f"{suite.harness}: no image of the kit holds it; omit --image")
    return name


def suite_with(suites: Mapping[str, Suite], benchmarks: tuple[str, ...], name: str | None) -> Suite:
    """The suite that has all of some benchmarks.

    Args:
        suites: all.
        benchmarks: as the tables call them.
        name: of the suite that is meant; None where only one fits.

    Raises:
        BadUse: no such suite, none that has them all, or several.
    """
    if name is not None and name not in suites:
        raise BadUse(f"--suite: no suite {name!r}; choose one of {', '.join(suites)}")
    fitting = [own for own, suite in suites.items() if set(benchmarks) <= set(suite.tasks)]
    if name is None and len(fitting) > 1:
        raise BadUse(f"{', '.join(benchmarks)}: in {' and '.join(fitting)}; add --suite")
    if name is None and not fitting:
        raise BadUse(f"{', '.join(benchmarks)}: no suite has it; see instella evaluation suites")
    return suites[fitting[0] if name is None else name]


def faults(suites: Mapping[str, Suite], published: Published) -> list[str]:
    """Where the suites differ from ``evaluation.yaml``, the legend, or the printed scores."""
    lines = []
    for name, suite in suites.items():
        for code in {*suite.sources, *(c for task in suite.tasks.values() for c in task.sources)}:
            if code not in published.sources.legend:
                lines.append(f"suites/{name}.yaml: source '{code}' has no legend")
        table = published.results.tables.get(suite.table)
        if table is None:
            lines.append(f"suites/{name}.yaml: results.json has no table {suite.table}")
            continue
        for benchmark, task in suite.tasks.items():
            where = f"suites/{name}.yaml: {benchmark}"
            lines += _disagreements(where, suite, benchmark, task, published.protocols)
            if task.counted:
                lines += _odd_scores(where, suite, benchmark, task, table)
    for table_name in {suite.table for suite in suites.values()}:
        known = {b for suite in suites.values() if suite.table == table_name for b in suite.tasks}
        columns = published.protocols.suites[table_name].tasks
        lines += [f"suites: {table_name}: no protocol of {b}" for b in columns if b not in known]
    return lines


def _disagreements(
    where: str, suite: Suite, benchmark: str, task: Task, protocols: Protocols
) -> list[str]:
    protocol = protocols.suites.get(suite.table)
    known = protocol.tasks.get(benchmark) if protocol else None
    if known is None:
        return [f"{where}: evaluation.yaml has no such task of {suite.table}"]
    pairs = {
        "task": (task.task, known.task),
        "metric": (task.metric, known.metric),
        "shots": (task.shots, known.shots),
        "items": (task.items, known.items if known.items is not None else task.items),
    }
    return [
        f"{where}: {name} is {ours!r}, evaluation.yaml says {theirs!r}"
        for name, (ours, theirs) in pairs.items()
        if ours != theirs
    ]


def _odd_scores(where: str, suite: Suite, benchmark: str, task: Task, table: Table) -> list[str]:
    """Printed scores that no whole number of right items gives."""
    if task.items is None:
        return [f"{where}: counted, but without a number of items"]
    half = 0.5 * 10.0**-suite.digits + _BINARY_FRACTION
    lines = []
    for model, scores in table.scores.items():
        score = scores.get(benchmark)
        if score is None:
            continue
        nearest = round(score / 100.0 * task.items)
        if abs(100.0 * nearest / task.items - score) > half:
            lines.append(f"{where}: {model}: {score} is no whole number of {task.items} items")
    return lines
