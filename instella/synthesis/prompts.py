"""What a language model is asked, step by step. The wording is this project's own.

Facts taken over from the publication: few examples for the abstraction and the program,
eight for the solution (recipe/FACTS D; the idea of programs behind problems is that of
ReasonAgain, arXiv 2410.19056).
"""

import json
from collections.abc import Mapping
from typing import Any

Message = dict[str, str]

_ABSTRACT = """\
Turn a school problem into a template. Replace each quantity that could be another number by a \
parameter in braces, and leave every other character as it is. Give each parameter a short \
lower-case name that says what it counts, its type (int or float) and its value in the problem. \
Reply with one JSON object with the keys "template" and "parameters", and nothing else."""

_PROGRAM = """\
Write a Python function that solves the problem for any values of its parameters. Call it solve, \
give it exactly the parameters, and return the answer as a number. Use arithmetic, conditions, \
loops, lists and, if needed, the module math, imported at the top. No printing, no other module, \
no class, no exception handling. Reply with one Python code block."""

_VALUES = """\
Choose {count} new sets of values for the parameters of the problem. Each set must make sense in \
the story, keep the type of every parameter, and differ from the other sets and from the original. \
Reply with one JSON list of {count} objects from parameter name to value, and nothing else."""

_REWORD = """\
State the problem again with the new values. Write every new value in digits, keep the meaning, \
and mend the grammar where a number asks for it. Reply with the new problem only."""

_SOLVE = """\
Solve the problem. Think in short steps, one sentence each, and close with a sentence that ends in \
the answer as a plain number."""

_BAKER = "A baker makes 4 trays of 12 rolls and sells 30 rolls. How many rolls are left?"
_BAKER_TEMPLATE = (
    "A baker makes {trays} trays of {rolls_per_tray} rolls and sells {sold} rolls. "
    "How many rolls are left?"
)
_BAKER_PARAMETERS = [
    {"name": "trays", "type": "int", "value": 4},
    {"name": "rolls_per_tray", "type": "int", "value": 12},
    {"name": "sold", "type": "int", "value": 30},
]
_PAINT = "A tin of paint covers 7.5 square metres. How many square metres do 6 tins cover?"
_PAINT_TEMPLATE = (
    "A tin of paint covers {area_per_tin} square metres. How many square metres do {tins} tins "
    "cover?"
)
_PAINT_PARAMETERS = [
    {"name": "area_per_tin", "type": "float", "value": 7.5},
    {"name": "tins", "type": "int", "value": 6},
]
_SHOTS: tuple[tuple[str, str], ...] = (
    (
        "A farmer has 5 hens. Each hen lays 6 eggs a week. How many eggs are laid in 3 weeks?",
        "In one week 5 hens lay 5 * 6 = 30 eggs. In 3 weeks that makes 30 * 3 = 90 eggs. "
        "The answer is 90.",
    ),
    (
        "A book has 240 pages. Nora reads 35 pages a day for 4 days. How many pages are left?",
        "Nora reads 35 * 4 = 140 pages. Then 240 - 140 = 100 pages are left. The answer is 100.",
    ),
    (
        "Three friends share a bill of $48 equally. How much does each pay?",
        "The bill is split in 3 equal parts, so each pays 48 / 3 = 16 dollars. The answer is 16.",
    ),
    (
        "A train ride takes 95 minutes and leaves at 10 minutes past the hour after a wait of 25 "
        "minutes. How many minutes are wait and ride together?",
        "Only wait and ride count: 25 + 95 = 120 minutes. The answer is 120.",
    ),
    (
        "A shop sells pens for $2 and pads for $5. Ali buys 7 pens and 3 pads. What does he pay?",
        "The pens cost 7 * 2 = 14 dollars. The pads cost 3 * 5 = 15 dollars. Together that is "
        "14 + 15 = 29 dollars. The answer is 29.",
    ),
    (
        "A coat costs $80 and is sold at 25% off. What is the new price?",
        "The discount is 80 * 25 / 100 = 20 dollars. The new price is 80 - 20 = 60 dollars. "
        "The answer is 60.",
    ),
    (
        "Rosa is twice as old as Tim, who is 9. How old are they together?",
        "Rosa is 2 * 9 = 18. Together they are 18 + 9 = 27. The answer is 27.",
    ),
    (
        "A tank holds 500 litres. It loses 12 litres an hour and gains 20 litres an hour. It has "
        "300 litres. In how many hours is it full?",
        "Each hour it gains 20 - 12 = 8 litres. It lacks 500 - 300 = 200 litres. That takes "
        "200 / 8 = 25 hours. The answer is 25.",
    ),
)


def _chat(task: str, shots: tuple[tuple[str, str], ...], asked: str) -> list[Message]:
    messages = [{"role": "system", "content": task}]
    for question, reply in shots:
        messages += [
            {"role": "user", "content": question},
            {"role": "assistant", "content": reply},
        ]
    return [*messages, {"role": "user", "content": asked}]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _template(template: str, parameters: list[dict[str, Any]]) -> str:
    lines = [f"- {item['name']} ({item['type']}): {item['value']}" for item in parameters]
    return "\n".join([template, "Parameters:", *lines])


def abstract(question: str) -> list[Message]:
    """Asks for template and parameters of a question; two examples."""
    shots = (
        (_BAKER, _json({"template": _BAKER_TEMPLATE, "parameters": _BAKER_PARAMETERS})),
        (_PAINT, _json({"template": _PAINT_TEMPLATE, "parameters": _PAINT_PARAMETERS})),
    )
    return _chat(_ABSTRACT, shots, question)


def program(template: str, parameters: list[dict[str, Any]]) -> list[Message]:
    """Asks for the function ``solve``; two examples."""
    shots = (
        (
            _template(_BAKER_TEMPLATE, _BAKER_PARAMETERS),
            "```python\ndef solve(trays, rolls_per_tray, sold):\n"
            "    made = trays * rolls_per_tray\n    return made - sold\n```",
        ),
        (
            _template(_PAINT_TEMPLATE, _PAINT_PARAMETERS),
            "```python\ndef solve(area_per_tin, tins):\n    return area_per_tin * tins\n```",
        ),
    )
    return _chat(_PROGRAM, shots, _template(template, parameters))


def values(template: str, parameters: list[dict[str, Any]], count: int) -> list[Message]:
    """Asks for ``count`` new sets of values."""
    return _chat(_VALUES.format(count=count), (), _template(template, parameters))


def reword(question: str, template: str, new: Mapping[str, int | float]) -> list[Message]:
    """Asks for the question with new values."""
    text = f"Problem: {question}\nTemplate: {template}\nNew values: {_json(dict(new))}"
    return _chat(_REWORD, (), text)


def solve(question: str) -> list[Message]:
    """Asks for a worked solution; eight examples."""
    return _chat(_SOLVE, _SHOTS, question)
