"""The pages as a site: they are up to date, every link leads somewhere, nothing is fetched."""

import re
import subprocess
from pathlib import Path

import pytest

from instella.commands.pages import FOLDER, pages
from instella.prove.copies import PROJECT

ASKS = re.compile(
    r"""<(?:script|img|iframe|source)[^>]*\ssrc=["']([^"']+)|<link[^>]*\shref=["']([^"']+)"""
)
FETCHED = re.compile(r"@import|url\(\s*[\"']?(?:https?:)?//")


@pytest.mark.parametrize("name", ["settings.md", "commands.md"])
def test_the_reference_is_up_to_date(name: str) -> None:
    say = "call .venv/bin/python -m instella.commands.pages"
    assert (FOLDER / name).read_bytes() == pages()[name], say


def test_the_site_is_built_and_asks_for_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [PROJECT / "kit", "setup", "docs"], capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr
    python, site = PROJECT / ".venvs/docs/bin/python", tmp_path / "site"
    done = subprocess.run(
        [python, "-m", "mkdocs", "build", "--strict", "--site-dir", site],
        cwd=PROJECT, capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    made = sorted(site.rglob("*.html"))
    assert len(made) > len(list(FOLDER.glob("*.md")))
    for page in made:
        for found in ASKS.findall(page.read_text(encoding="utf-8")):
            address = "".join(found)
            assert "//" not in address, f"{page.name} fetches {address}"
    for style in site.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        assert not FETCHED.search(text), f"{style.name} fetches something"
