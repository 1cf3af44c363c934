"""What a teacher says is checked, field by field; numbers are read as people write them."""

import json
from fractions import Fraction

import pytest

from instella.synthesis import quantities, replies
from instella.synthesis.replies import Rejected

QUESTION = "A box holds 1,200 pens and costs $4.50. What do 3 boxes cost?"
PARAMETERS = [
    {"name": "pens", "type": "int", "value": 1200},
    {"name": "price", "type": "float", "value": 4.5},
    {"name": "boxes", "type": "int", "value": 3},
]
TEMPLATE = "A box holds {pens} pens and costs ${price}. What do {boxes} boxes cost?"
GOOD = {"template": TEMPLATE, "parameters": PARAMETERS}


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("The answer is 1,234.50.", Fraction("1234.5")),
        ("so 3 - 5 = -2", Fraction(-2)),
        ("10 -3", Fraction(3)),
        ("(4)-3", Fraction(3)),
        ("x-3", Fraction(3)),
        ("it is -3.", Fraction(-3)),
        ("#### 72", Fraction(72)),
        ("in 2024, 1,23 left", Fraction(23)),
        ("no number", None),
        ("9" * 50, None),
        ("٣", None),
    ],
)
def test_last_number(text: str, last: Fraction | None) -> None:
    assert quantities.last_number(text) == last


@pytest.mark.parametrize(
    ("value", "text"),
    [(24, "24"), (24.0, "24"), (7.5, "7.5"), (0.1 + 0.2, "0.3"), (1e-7, "0"), (-1.25, "-1.25"),
     (10**12, "1000000000000"), (Fraction(1, 3), "0.333333")],
)  # fmt: skip
def test_numbers_are_written_without_exponent(value: int | float | Fraction, text: str) -> None:
    assert quantities.written(value) == text


def test_a_good_abstraction_gives_the_question_back() -> None:
    template, parameters = replies.abstraction_in(
        f"Here it is:\n```json\n{json.dumps(GOOD)}\n```", QUESTION
    )
    assert parameters == PARAMETERS
    values = {item["name"]: item["value"] for item in parameters}
    assert replies.fill(template, values) == QUESTION.replace("1,200", "1200").replace("50.", "5.")


BAD_ABSTRACTIONS = {
    "no JSON": "the template is ...",
    "no JSON for NaN": json.dumps(GOOD).replace("4.5", "NaN"),
    "a key twice": json.dumps(GOOD)[:-1] + ', "template": ""}',
    "JSON of another form": json.dumps([GOOD]),
    "another key": json.dumps({**GOOD, "more": 1}),
    "template no text": json.dumps({**GOOD, "template": 1}),
    "no parameter": json.dumps({**GOOD, "parameters": []}),
    "a parameter twice": json.dumps({**GOOD, "parameters": [*PARAMETERS, PARAMETERS[0]]}),
    "parameter left out": json.dumps({**GOOD, "parameters": PARAMETERS[:2]}),
    "parameter invented": json.dumps({**GOOD, "template": TEMPLATE.replace("{pens}", "1200")}),
    "another question": json.dumps({**GOOD, "template": TEMPLATE.replace("pens a", "cups a")}),
    "another value": json.dumps(
        {**GOOD, "parameters": [{**PARAMETERS[0], "value": 1201}, *PARAMETERS[1:]]}
    ),
    "format attack": json.dumps({**GOOD, "template": TEMPLATE.replace("pens}", "pens.real}")}),
    "long": json.dumps({**GOOD, "template": TEMPLATE + " " * 1000}),
}
BAD_FIELDS = [
    {"name": "class"}, {"name": "max"}, {"name": "solve"}, {"name": "Pens"}, {"name": "_a"},
    {"name": "a b"}, {"name": 1}, {"type": "str"}, {"type": "int", "value": 1.5},
    {"value": True}, {"value": "3"}, {"value": -1}, {"value": 1e99}, {"more": 1},
]  # fmt: skip


@pytest.mark.parametrize("name", BAD_ABSTRACTIONS)
def test_bad_abstractions_are_rejected(name: str) -> None:
    with pytest.raises(Rejected):
        replies.abstraction_in(BAD_ABSTRACTIONS[name], QUESTION)


@pytest.mark.parametrize("change", BAD_FIELDS, ids=str)
def test_bad_parameters_are_rejected(change: dict) -> None:
    bad = {**PARAMETERS[0], **change}
    template = TEMPLATE.replace("{pens}", f"{{{bad['name']}}}")
    reply = json.dumps({"template": template, "parameters": [bad, *PARAMETERS[1:]]})
    with pytest.raises(Rejected):
        replies.abstraction_in(reply, QUESTION)


VALUES = {"pens": 100, "price": 2.25, "boxes": 8}


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"pens": 100, "price": 2.25}, "other parameters"),
        ({**VALUES, "more": 1}, "other parameters"),
        ([1, 2, 3], "other parameters"),
        ({**VALUES, "pens": 100.5}, "not of its type"),
        ({**VALUES, "pens": True}, "not of its type"),
        ({**VALUES, "pens": -3}, "not of its type"),
        ({**VALUES, "pens": 10**10}, "not of its type"),
        ({**VALUES, "price": 2.12345678}, "not of its type"),
        ({**VALUES, "boxes": 0}, "zero"),
        ({"pens": 1200, "price": 4.5, "boxes": 3}, "known"),
    ],
)
def test_implausible_values_are_rejected(values: object, reason: str) -> None:
    own = {item["name"]: item["value"] for item in PARAMETERS}
    assert replies.check_values(VALUES, PARAMETERS, [own]) == VALUES
    with pytest.raises(Rejected, match=reason):
        replies.check_values(values, PARAMETERS, [own])


@pytest.mark.parametrize("result", [7.5, -1, -0.5, 10**12, 1 / 3])
def test_an_answer_is_a_whole_number(result: int | float) -> None:
    assert replies.check_answer(18.000000000000004) == 18
    with pytest.raises(Rejected):
        replies.check_answer(result)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "no question"),
        ("A box holds {pens} pens and costs $2.25. 100 What do 8 boxes cost?", "no question"),
        ("A box holds 100 pens. What do 8 boxes cost?", "missing"),
        ("100 pens, 8 boxes, 2.25 dollars " * 40, "too long"),
    ],
)
def test_a_question_states_every_value(reply: str, reason: str) -> None:
    good = "A box holds 100 pens and costs $2.25. What do 8 boxes cost?"
    assert replies.question_in(f" {good}\n", VALUES, QUESTION) == good
    with pytest.raises(Rejected, match=reason):
        replies.question_in(reply, VALUES, QUESTION)


def test_the_original_question_is_no_new_one() -> None:
    own = {item["name"]: item["value"] for item in PARAMETERS}
    with pytest.raises(Rejected, match="original"):
        replies.question_in(QUESTION.replace(" pens", "  pens"), own, QUESTION)


def test_a_solution_ends_in_the_answer() -> None:
    assert replies.solution_in(" 2 * 9 = 18. \n", Fraction(18)) == "2 * 9 = 18."
    with pytest.raises(Rejected, match="another number"):
        replies.solution_in("2 * 9 = 18, or 19", Fraction(18))
    with pytest.raises(Rejected, match="no number"):
        replies.solution_in("eighteen", Fraction(18))
    with pytest.raises(Rejected, match="too long"):
        replies.solution_in("1 + 1 = 2. " * 1000 + "18", Fraction(18))


def test_code_is_the_last_block() -> None:
    reply = "First\n```python\ndef solve():\n    return 1\n```\nbetter\n```\ndef solve():\n    return 2\n```"
    assert replies.code_in(reply) == "def solve():\n    return 2\n"
    with pytest.raises(Rejected):
        replies.code_in("return 1")
