import argparse

import pytest

from instella.commands import grade
from instella.errors import BadUse


@pytest.fixture
def run(capsys):
    parser = argparse.ArgumentParser()
    grade.register(parser.add_subparsers())

    def call(*arguments):
        args = parser.parse_args(["grade", *map(str, arguments)])
        assert args.run(args) == 0
        return capsys.readouterr().out

    return call


def test_a_pair_prints_one_verdict(run):
    assert run("--gold", "18", "--answer", "18.0") == "correct\n"
    assert run("--gold", "18", "--answer", r"first \boxed{17}, then \boxed{18}") == "correct\n"
    assert run("--gold", "18", "--answer", r"\boxed{18} or \boxed{17}") == "wrong\n"
    assert run("--gold", "18", "--answer", r"\boxed{18") == "no answer\n"
    assert run("--gold=-4", "--answer=-4") == "correct\n"
    assert run("--gold", "18", "--answer", "") == "no answer\n"


def test_a_batch_prints_its_verdicts_in_order(run, tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text(
        '{"gold": "1", "answer": "2"}\n'
        '{"gold": "1", "answer": "\\\\boxed{1}", "more": 0}\n'
        '{"gold": "1", "answer": "\u2028"}\n'
        '{"gold": "\\\\frac12", "answer": "0.5"}'
    )
    assert run("--batch", path) == "wrong\ncorrect\nno answer\ncorrect\n"
    path.write_text("")
    assert run("--batch", path) == ""


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"gold": "1", "answer": "2"}\n{"gold": "1"}\n', "line 2: expected an object"),
        ('{"gold": "1", "answer": "2"}\n\n', "line 2"),
        ('{"gold": 1, "answer": "2"}\n', "line 1: expected an object"),
        ("[1]\n", "line 1: expected an object"),
        ('{"gold": "1", "gold": "2", "answer": "2"}\n', "line 1"),
        ("{\n", "line 1"),
        ("\xff\n", "line 1"),
    ],
)
def test_a_bad_row_is_named_and_nothing_is_printed(run, tmp_path, capsys, text, place):
    path = tmp_path / "pairs.jsonl"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(BadUse, match=place) as caught:
        run("--batch", path)
    assert str(path) in str(caught.value) and caught.value.exit_code == 2
    assert capsys.readouterr().out == ""


def test_wrong_use_is_refused(run, tmp_path):
    for arguments in ((), ("--gold", "1"), ("--gold", "1", "--answer", "1", "--batch", "x")):
        with pytest.raises(BadUse, match="--batch alone"):
            run(*arguments)
    with pytest.raises(BadUse, match="No such file"):
        run("--batch", tmp_path / "absent.jsonl")
