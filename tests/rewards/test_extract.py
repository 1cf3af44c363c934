import time

import pytest

from instella.rewards.extract import last_boxed


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"so \boxed{4}", "4"),
        (r"\boxed{1} then \boxed{2}.", "2"),
        (r"\boxed{1} then \fbox{3}", "3"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\text{a {nested} set } \{1,2\}}", r"\text{a {nested} set } \{1,2\}"),
        (r"\boxed{\left\{ x \mid x > 1 \right\}}", r"\left\{ x \mid x > 1 \right\}"),
        (r"\boxed 5 is it", "5"),
        (r"$\boxed -4/3$", "-4/3"),
        ("\\boxed\n {7}", "7"),
        (r"\boxed{ 7 }", "7"),
        (r"\boxed{}", ""),
        (r"\boxed{\boxed{5}}", "5"),
        (r"\boxed{3} \boxedx{9}", "3"),
        ("\\boxed{a\x00b}", "a\x00b"),
        ("\\boxed{\u05d0\u05d1\u202e12}", "\u05d0\u05d1\u202e12"),
        ("\\boxed{x\\\\}", "x\\\\"),
        (r"\boxed{4} and \boxed{5", None),
        (r"\boxed{4\}", None),
        (r"\boxed", None),
        ("boxed{4}", None),
        ("", None),
    ],
)
def test_last_boxed(text, content):
    assert last_boxed(text) == content


def test_ten_thousand_nested_braces_and_long_texts_take_linear_time():
    deep = "\\boxed" + "{" * 10_000 + "5" + "}" * 10_000
    assert last_boxed(deep) == "{" * 9_999 + "5" + "}" * 9_999
    started = time.process_time()
    for text in (
        "\\boxed{1}" * 12_000,
        "\\boxed{" * 15_000,
        "\\fbox{2} " + "\\boxedx" * 15_000,
        "\\boxed " * 15_000,
        "\\boxed{1}" + "\\boxed" + " " * 100_000,
        "\\" * 100_000 + "boxed{3}",
    ):
        last_boxed(text)
    assert time.process_time() - started < 1.0
