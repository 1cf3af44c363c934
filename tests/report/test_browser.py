"""The page in a real browser: Debian's Chromium, and axe-core for what a person cannot see.

axe-core is in requirements/test.lock; Chromium is among the packages of requirements/system.txt.
"""

import json
import shutil
from collections.abc import Iterator
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import pytest
from browser import Browser, browser
from report_runs import HOSTILE, NANO, hostile_recipe, write_health, write_run

from instella.cli import main

pytestmark = pytest.mark.slow
OPENED = "stage-sft"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests."""
    assert shutil.which("chromium"), "chromium is missing: ./kit packages tells what to install"
    with browser(tmp_path_factory.mktemp("browser")) as started:
        yield started


def make_page(folder: Path, recipe: Path, text: str) -> Path:
    """A page of a whole run that says ``text`` wherever it can."""
    write_run(folder / "results" / "nano", recipe, text)
    write_health(folder / "results" / "nano", "grpo2")
    page = folder / "page.html"
    places = ["--results", str(folder / "results"), "--store", str(folder / "store")]
    assert main(["report", "--recipe", str(recipe), *places, "--output", str(page)]) == 0
    return page


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of an ordinary run."""
    return make_page(tmp_path_factory.mktemp("page"), NANO, "a text")


def test_it_loads_alone_and_draws_everything(chromium: Browser, page: Path) -> None:
    chromium.resize(1200, 900)
    chromium.media("light")
    chromium.open(page)
    assert chromium.faults() == []
    assert chromium.requests() == [page.absolute().as_uri()]
    assert chromium.run("document.querySelectorAll('.chart').length") == 12
    blank = """Array.from(document.querySelectorAll('.chart canvas')).filter((canvas) =>
        !new Uint32Array(canvas.getContext('2d').getImageData(
            0, 0, canvas.width, canvas.height).data.buffer).some((value) => value)).length"""
    assert chromium.run("document.querySelectorAll('.chart canvas').length") == 12
    assert chromium.run(blank) == 0
    assert chromium.run("document.querySelector('[data-time=sft]').textContent") == "1.5 s"


def test_a_node_opens_its_manifest_by_mouse_and_by_keyboard(chromium: Browser, page: Path) -> None:
    is_open = f"document.getElementById('{OPENED}').checkVisibility() && " \
              f"document.getElementById('{OPENED}').open"  # fmt: skip
    wait = "new Promise((done) => setTimeout(done, 50))"
    chromium.open(page)
    assert chromium.run(is_open) is False
    chromium.run("document.querySelector('.node[data-stage=sft]').dispatchEvent("
                 "new MouseEvent('click', {bubbles: true, cancelable: true}))")  # fmt: skip
    chromium.run(wait)
    assert chromium.run(is_open) is True
    chromium.open(page)
    chromium.run("document.querySelector('.node[data-stage=sft]').focus()")
    chromium.press("Enter", 13)
    chromium.run(wait)
    assert chromium.run(is_open) is True
    assert chromium.run("document.activeElement.parentElement.id") == OPENED
    assert chromium.faults() == []


def test_a_table_sorts(chromium: Browser, page: Path) -> None:
    chromium.open(page)
    column = """(() => {
        const head = Array.from(document.querySelectorAll('#cost th')).find(
            (cell) => cell.textContent.trim() === 'FLOPs');
        head.querySelector('button').click();
        const rows = Array.from(head.closest('table').tBodies[0].rows);
        return [head.getAttribute('aria-sort'),
                ...rows.map((row) => row.cells[head.cellIndex].dataset.value)].join(' ');
    })()"""
    for order in ("ascending", "descending"):
        said, *values = chromium.run(column).split()
        numbers = [float(value) for value in values]
        assert said == order and len(set(numbers)) > 3
        assert numbers == sorted(numbers, reverse=order == "descending")


def test_one_stage_can_be_chosen_on_the_time_line(chromium: Browser, page: Path) -> None:
    chromium.open(page)
    pixels = "document.querySelector('#panel-0 canvas').toDataURL()"
    whole = chromium.run(pixels)
    chromium.run("document.getElementById('zoom').value = '2'; "
                 "document.getElementById('zoom').dispatchEvent(new Event('change'))")  # fmt: skip
    chromium.run("new Promise((done) => setTimeout(done, 100))")
    assert chromium.run(pixels) != whole
    assert chromium.faults() == []


@pytest.mark.parametrize(("width", "kind"), [(390, ""), (700, "print")])
def test_nothing_sticks_out(chromium: Browser, page: Path, width: int, kind: str) -> None:
    chromium.resize(width, 844, mobile=width < 500)
    chromium.media("dark", kind)
    chromium.open(page)
    assert chromium.run("document.documentElement.scrollWidth") <= width
    paper = chromium.run("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (kind == "print"), "paper is white in print"
    chromium.resize(1200, 900)
    chromium.media("light")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_accessibility_checker_finds_nothing(
    chromium: Browser, page: Path, scheme: str
) -> None:
    assert find_spec("axe_core_python"), "axe-core is missing: ./kit setup test"
    chromium.media(scheme)
    chromium.open(page, f"#{OPENED}")
    script = files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    chromium.run(f"{script};0")
    found = chromium.run(
        # the manifests that stay closed are made like the open one
        "axe.run({include: [['html']], exclude: [['.manifest:not([open])']]}, {resultTypes: ['violations', 'passes']}).then((result) =>"
        "JSON.stringify([result.passes.map((rule) => rule.id), result.violations.map((rule) =>"
        "[rule.id, rule.nodes.slice(0, 3).map((node) => node.html.slice(0, 150))])]))"
    )
    passed, violated = json.loads(found)
    assert violated == []
    assert {"color-contrast", "button-name", "select-name", "role-img-alt"} <= set(passed)


def test_hostile_text_does_nothing(chromium: Browser, tmp_path: Path) -> None:
    chromium.open(make_page(tmp_path, hostile_recipe(tmp_path), HOSTILE))
    assert chromium.run("window.hacked === undefined")
    assert chromium.faults() == [] and len(chromium.requests()) == 1
    assert chromium.run("document.querySelectorAll('.chart canvas').length") == 12
