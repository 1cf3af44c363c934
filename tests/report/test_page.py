"""The page holds what the run says, as text and nothing else, and the same for the same run."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from report_runs import HOSTILE, HOSTILE_FILE, NANO, hostile_recipe, write_health, write_run

from instella.artifacts import journal
from instella.artifacts.manifest import Entry, Manifest
from instella.canonical import json_bytes, sha256_bytes
from instella.cli import main
from instella.errors import VerificationError
from instella.report.files import Files
from instella.report.page import VOLATILE_BEGIN, content_hash, script_json
from instella.report.scores import results_of

ADDRESS = re.compile(r"(?i)^(?:[a-z][a-z0-9+.-]*:|//)")


class Page(HTMLParser):
    """Elements and text of a page."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self._open: str | None = None
        self.feed(data.decode("utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))
        self._open = tag if tag in ("script", "style") else None
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._open = None

    def handle_data(self, data: str) -> None:
        if self._open == "script":
            self.scripts[-1] += data
        elif self._open is None:
            self.text += data


def charts_of(page: Page) -> dict[str, Any]:
    """What the page's script draws."""
    return dict(json.loads(next(text for text in page.scripts if text.startswith('{"curves"'))))


def make(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[bytes, str]:
    """Run ``instella report``; the page's bytes and what was printed."""
    code = main(["report", *map(str, arguments)])
    said = capsys.readouterr()
    assert code == 0, said.err
    return Path(said.out.partition(": ")[0]).read_bytes(), said.out


def single(
    capsys: pytest.CaptureFixture[str], folder: Path, recipe: Path = NANO, *more: Any
) -> bytes:
    """The page of the run in ``folder/results/nano``."""
    places = ["--recipe", recipe, "--results", folder / "results", "--store", folder / "store"]
    return make(capsys, *places, "--output", folder / "page.html", *more)[0]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A folder with a whole run."""
    write_run(tmp_path / "results" / "nano")
    return tmp_path


def test_the_page_shows_the_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = Page(single(capsys, run))
    charts = charts_of(page)
    nodes = [a for tag, a in page.elements if tag == "a" and "node" in (a.get("class") or "")]
    assert len(nodes) == 46
    ids = {attributes.get("id") for _, attributes in page.elements}
    assert {f"stage-{a['data-stage']}" for a in nodes} <= ids
    assert len(charts["panels"]) == 10
    means = [curve for curve in charts["curves"] if curve["seeds"] == 3]
    assert [curve["stage"] for curve in means] == ["pretrain_stage2"]
    assert charts["line"][0]["from"] == 0 and charts["line"][-1]["to"] == 45
    for words in ("Energy was not measured", "nano.yaml, line ", "default of the schema",
                  "recorded root", "BSD-3-Clause", "audit"):  # fmt: skip
        assert words in page.text, words


def test_what_grpo_logs_beside_its_artifacts_is_of_the_execution(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = single(capsys, run)
    notes = write_health(run / "results" / "nano", "grpo2")
    found = single(capsys, run)
    page = Page(found)
    volatile = next(text for text in page.scripts if text.startswith('{"computed'))
    health = json.loads(volatile)["noted"]
    assert [panel["figure"] for panel in health["charts"]["panels"]] == ["entropy", "timed_out"]
    main = charts_of(page)
    start = next(part["from"] for part in main["line"] if part["stage"] == "grpo2")
    assert health["charts"]["curves"][0]["start"] == start
    boxes = [a["data-panel"] for tag, a in page.elements if (a.get("class") or "") == "chart"]
    assert boxes == [str(number) for number in range(len(main["panels"]) + 2)]
    assert content_hash(found) == content_hash(before)
    notes.write_bytes(b"no JSON")
    assert single(capsys, run) == before


def test_statements_are_listed_with_their_stage_and_hash(run: Path, capsys: Any) -> None:
    """They are of this execution, so the rest of the page stays as it is without them."""
    before = single(capsys, run)
    place = run / "results/nano/statements"
    (place / "provenance").mkdir(parents=True)
    (place / "run.intoto.jsonl").write_bytes(b"{}\n")
    (place / "provenance" / "sft.intoto.jsonl").write_bytes(b'{"of": "sft"}\n')
    (place / "provenance" / "nobody.intoto.jsonl").write_bytes(b"{}\n")
    after = single(capsys, run)
    page = Page(after)
    assert "provenance/sft.intoto.jsonl" in page.text and "provenance/nobody" not in page.text
    assert sha256_bytes(b'{"of": "sft"}\n')[:12] in page.text
    assert content_hash(before) == content_hash(after)


def test_an_unfinished_run_is_told_as_such(tmp_path: Path, capsys: Any) -> None:
    results = tmp_path / "results" / "nano"
    results.mkdir(parents=True)
    page = Page(single(capsys, tmp_path))
    assert "Not finished" in page.text and "0 of 46 stages" in page.text
    assert "No training stage has a result yet" in page.text


def test_energy_is_of_the_watts_that_were_stated(run: Path, capsys: Any) -> None:
    page = Page(single(capsys, run, NANO, "--watts", 100, "--price", 0.5))
    kwh = 46 * 1.5 * 100 / 3.6e6
    assert f"{kwh:.4f} kWh, which cost {kwh / 2:.4f}" in page.text


def test_equal_runs_make_equal_pages_but_for_their_execution(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "another place"
    write_run(other / "results" / "nano")
    path = other / "results/nano" / journal.FOLDER / "sft.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"seconds":1.5', b'"seconds":9.75'))
    one, two = single(capsys, run), single(capsys, other)
    assert one != two and content_hash(one) == content_hash(two)
    write_run(tmp_path / "changed" / "results" / "nano", offset=1.0)
    assert content_hash(single(capsys, tmp_path / "changed")) != content_hash(one)
    with pytest.raises(VerificationError, match="not a page"):
        content_hash(one.replace(VOLATILE_BEGIN, b""))


def test_hostile_text_stays_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = hostile_recipe(tmp_path)
    write_run(tmp_path / "bad" / "results" / "nano", recipe, HOSTILE)
    write_run(tmp_path / "good" / "results" / "nano")
    bad = Page(single(capsys, tmp_path / "bad", recipe))
    good = Page(single(capsys, tmp_path / "good"))
    assert HOSTILE in bad.text and HOSTILE_FILE in bad.text
    assert {tag for tag, _ in bad.elements} <= {tag for tag, _ in good.elements} | {"section"}
    assert len(bad.scripts) == len(good.scripts)
    for tag, attributes in bad.elements:
        assert not any(name.startswith("on") or name == "style" for name in attributes), tag
        for name in ("src", "href", "action", "data"):
            assert not ADDRESS.match(attributes.get(name) or "") or tag == "link", attributes
    assert len(charts_of(bad)["panels"]) == 10


def test_the_policy_allows_the_scripts_of_the_page_only(run: Path, capsys: Any) -> None:
    page = Page(single(capsys, run))
    (policy,) = [
        a["content"] for tag, a in page.elements
        if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy"
    ]  # fmt: skip
    assert policy is not None and "default-src 'none'" in policy and "unsafe" not in policy
    assert policy.count("'sha256-") == 3 and "http" not in policy


@pytest.mark.parametrize("path", ["sft/steps.jsonl", "results/results.json"])
def test_altered_bytes_are_not_shown(run: Path, capsys: Any, path: str) -> None:
    file = run / "results/nano" / path
    file.write_bytes(file.read_bytes().replace(b"0", b"1", 1))
    page = Page(single(capsys, run))
    assert f"{path.replace('/', ': ')}: expected sha256" in page.text
    assert "What could not be shown" in page.text


@pytest.mark.parametrize(
    "value", [{}, [], {"claims": [], "baseline": {}, "checkpoints": {"a": 1}, "choices": {}}]
)
def test_results_of_another_form_are_a_fault(tmp_path: Path, value: Any) -> None:
    data = json_bytes(value)
    entry = Entry(sha256_bytes(data), len(data))
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "results.json").write_bytes(data)
    made = Manifest("results", "results", "computed", {}, {"results.json": entry})
    files = Files(tmp_path, {"results": made})
    assert results_of(files) is None and len(files.faults) == 1


def test_two_runs_beside_each_other(run: Path, tmp_path: Path, capsys: Any) -> None:
    other = tmp_path / "B"
    write_run(other / "results" / "nano", offset=0.125)
    data, _ = make(capsys, run / "results/nano", other, "--output", tmp_path / "two.html")
    page = Page(data)
    assert "Different roots" in page.text and "pretrain_stage1" in page.text
    assert "+0.1250" in page.text
    charts = charts_of(page)
    assert {curve["side"] for curve in charts["curves"]} == {"A", "B"}
    assert charts["line"][-1]["to"] == 45
    same, _ = make(capsys, run, run, "--output", tmp_path / "same.html")
    assert "Equal roots" in Page(same).text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["one"], "two to compare them"),
        (["--price", "1"], "give --watts"),
        (["--watts", "-1"], "not a number above 0"),
        (["nowhere", "nowhere"], "no such folder"),
    ],
)
def test_wrong_use_is_one_line(arguments: list[str], words: str, capsys: Any) -> None:
    try:
        code = main(["report", *arguments])
    except SystemExit as end:
        code = int(end.code or 0)
    said = capsys.readouterr().err
    assert code == 2 and words in said and said.count("\n") == 1


def test_a_place_that_cannot_be_written_is_one_line(run: Path, capsys: Any) -> None:
    target = run / "none" / "page.html"
    code = main(["report", "--recipe", str(NANO), "--results", str(run / "results"),
                 "--output", str(target)])  # fmt: skip
    assert code == 1 and "give --output FILE" in capsys.readouterr().err


def test_json_in_a_script_cannot_end_it() -> None:
    text = script_json({"a": "</script><!--\u2028&"})
    assert "<" not in text and "&" not in text and "\u2028" not in text
    assert json.loads(text) == {"a": "</script><!--\u2028&"}
