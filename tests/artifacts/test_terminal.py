"""Names and values of others on a terminal."""

import io
import json

import pytest

from instella.artifacts.check import Fault
from instella.artifacts.compare import Difference
from instella.terminal import MAX_SHOWN, Plain, plain

ODD = [
    "\x1b[2Jclean",
    "a\nb",
    "\x9b2J",
    "\u202egnp",
    "\u2028",
    "\ud800",
    "\udcff",
    "\x7f",
    "\U000e0041",
]


@pytest.mark.parametrize("text", ODD, ids=ascii)
def test_what_steers_a_terminal_is_quoted(text: str) -> None:
    assert plain(text).isprintable()
    fault = Fault("stage", "view", text, text, text)
    assert str(fault).isprintable()
    for field in (f"settings.{text}", text):
        assert str(Difference(field, text, text)).isprintable()


def test_what_is_printable_stays_and_what_is_long_is_cut() -> None:
    assert plain("Läuf 第一 \u0430") == "Läuf 第一 \u0430"
    text = plain("x" * 100_000)
    assert len(text) < MAX_SHOWN + 40 and text.endswith("... (99600 characters more)")


def test_a_line_of_json_keeps_its_value() -> None:
    stream = io.StringIO()
    value = {"text": " ".join([*ODD, "Läuf\t 第一"])}
    print(json.dumps(value, ensure_ascii=False), file=Plain(stream))  # type: ignore[arg-type]
    line = stream.getvalue()
    assert line.removesuffix("\n").isprintable() and json.loads(line) == value
    assert line.encode("utf-8")
