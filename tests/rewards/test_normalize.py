from fractions import Fraction

import pytest

from instella.rewards.normalize import decide, number, tidy


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("025", Fraction(25)),
        ("-7", Fraction(-7)),
        ("\u22127", Fraction(-7)),
        ("58,500", Fraction(58500)),
        (r"11,\! 111,\! 111,\! 100", Fraction(11111111100)),
        (r"\$32,\!348", Fraction(32348)),
        ("1{,}000", Fraction(1000)),
        (".5", Fraction(1, 2)),
        ("5.", Fraction(5)),
        (".0000672", Fraction(672, 10**7)),
        (r"\dfrac{17}{50}", Fraction(17, 50)),
        (r"\frac43", Fraction(4, 3)),
        (r"\frac 59", Fraction(5, 9)),
        (r"\frac9{19}", Fraction(9, 19)),
        (r"\frac{270}7", Fraction(270, 7)),
        (r"-\frac{35}{9}", Fraction(-35, 9)),
        ("2/3", Fraction(2, 3)),
        (r"1\frac{4}{5}", Fraction(9, 5)),
        (r"137 \frac{1}{2}", Fraction(275, 2)),
        ("1 1/2", Fraction(3, 2)),
        (r"3 \times 10^{8}", Fraction(3 * 10**8)),
        (r"28\%", Fraction(28)),
    ],
)
def test_exact_numbers(text, value):
    assert number(tidy(text)).value == value


@pytest.mark.parametrize(
    "text",
    [
        "", ".", "-", "1/0", r"\frac{1}{0}", "1 2", "1,2", "1,23", "1,2345", "12:00", "x", "1e5",
        "1-2", r"3 \times 10^{9999}", "\u0663x", "1\x002", "--1",
    ],
)  # fmt: skip
def test_what_looks_almost_like_a_number_is_not_guessed(text):
    assert number(tidy(text)) is None


@pytest.mark.parametrize(
    ("gold", "answer", "equal"),
    [
        ("18", "18", True),
        ("18", "18.", True),
        ("18", "$18$", True),
        ("18", r"\(18\)", True),
        ("18", "18 dollars", True),
        ("18", r"18\text{ dollars}", True),
        ("1450000", "1,450,000", True),
        ("18", "81", False),
        ("18", "1 8", None),
        ("90^\\circ", "90", True),
        ("90^\\circ", "90^{\\circ}", True),
        ("90^\\circ", "90\u00b0", True),
        ("90^\\circ", "90 degrees", True),
        (r"28\%", r"28 pct", True),
        (r"28\%", r"28\text{ percent}", True),
        (r"28\%", "0.28", True),
        (r"28\%", "28", True),
        (r"28\%", "2.8", False),
        ("0.28", "28", False),
        (r"15\mbox{ cm}^2", "15", True),
        (r"15\mbox{ cm}^2", r"15\text{ m}", None),
        (r"\text{Evelyn}", "Evelyn", True),
        (r"\text{(C)}", "C", True),
        (r"\left( 3, \frac{\pi}{2} \right)", r"(3,\dfrac{\pi}{2})", True),
        ("0.333333", "1/3", True),
        ("0.33", "1/3", False),
        ("0.666666", "2/3", False),
        ("0.0000001", "0.0000002", False),
        ("12:00", "1:00", False),
        ("12:00", "12:00 p.m.", True),
        ("1:00 pm", "1:00 am", False),
        ("12:00", "12", False),
        ("52_8", "52_{8}", True),
        ("52_8", "52_9", False),
        ("52_8", "52", True),
        ("52_8", "42", False),
        ("1", "01", True),
        (r"\begin{pmatrix}1 \\ 2\end{pmatrix}", r"\begin{pmatrix}1 2\end{pmatrix}", None),
        (r"\leftarrow", "arrow", None),
        (r"\pi x", r"\pix", None),
    ],
)
def test_verdicts_without_algebra(gold, answer, equal):
    assert decide(tidy(gold), tidy(answer)) is equal


def test_tidy_is_idempotent_on_its_own_output():
    for text in (r"\left[ \frac{\pi^2}{8}, \tfrac54 \right]", r"\$18.90", r"864 \mbox{ inches}^2"):
        assert tidy(tidy(text)) == tidy(text)
