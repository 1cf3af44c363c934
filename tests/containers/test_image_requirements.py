"""Locks of an image's Python packages, asked of pip for the image's own Python."""

import re
from pathlib import Path

import pytest

from instella.containers.requirements import resolve
from instella.errors import BadUse, KitError

HASH = f"--hash=sha256:{'0' * 64}"


def write(project: Path, text: str) -> Path:
    (project / "pins.lock").write_text(
        f"--no-binary x\nantlr4-python3-runtime==4.9.3 \\\n    {HASH}\n"
        f"markdown-it-py==3.0.0 {HASH}\nmdurl==0.1.1 {HASH}\n"
    )
    source = project / "requirements.in"
    source.write_text(text)
    return source


def test_versions_are_those_of_the_named_lock(tmp_path: Path) -> None:
    source = write(
        tmp_path,
        "# python 3.12\n# base Markdown_It.py\n# pins pins.lock\n"
        "# alone antlr4-python3-runtime\nmarkdown-it-py<4\n",
    )
    resolve(source, tmp_path)
    head, *lines = source.with_suffix(".lock").read_text().splitlines()
    assert head.startswith("# Made by")
    assert [re.sub(r"[0-9a-f]{64}$", "HEX", line) for line in lines] == [
        "antlr4-python3-runtime==4.9.3 --hash=sha256:HEX",
        "mdurl==0.1.1 --hash=sha256:HEX",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("# pins pins.lock\nx\n", r"no line '# python 3\.N'"),
        ("# python 3.12\n# pins other.lock\nx\n", r"other\.lock: missing.*its versions"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(BadUse, match=words):
        resolve(write(tmp_path, text), tmp_path)


def test_the_bases_version_is_taken_as_it_is(tmp_path: Path) -> None:
    """No index has it, and what only an index's build of it asks for stays out."""
    text = "# python 3.12\n# base markdown-it-py=={} pygments\n# pins pins.lock\nrich==13.9.4\n"
    source = write(tmp_path, text.format("3.99.0"))
    resolve(source, tmp_path)
    lines = source.with_suffix(".lock").read_text().splitlines()[1:]
    assert [line.partition(" ")[0] for line in lines] == ["rich==13.9.4"]
    source = write(tmp_path, text.format("2.1.0"))
    with pytest.raises(KitError, match="conflicting dependencies"):
        resolve(source, tmp_path)
