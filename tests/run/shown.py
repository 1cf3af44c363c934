"""The commands that README and docs show, as one line each."""

import re
from collections.abc import Iterator
from pathlib import Path

from instella.prove.copies import PROJECT

PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "config/README.md", "docs/*.md")
PROGRAM = re.compile(
    r"(\./kit|instella|\.venv/bin/|\.venvs/|python|pip|srun|sbatch|torchrun|snakemake|git|cp|curl|"
    r"docker|podman|apptainer|tensorboard|mkdocs|cosign|ssh-keygen|sha256sum|echo|apt)(\s|$|(?<=/))"
)
INLINE = re.compile(r"`([^`\n]+(?:\n[^`\n]+)?)`")


def commands() -> dict[str, list[str]]:
    """Command to the pages that show it; comments and blanks between words do not count."""
    found: dict[str, list[str]] = {}
    for pattern in PAGES:
        for page in sorted(PROJECT.glob(pattern)):
            for command in _of(page):
                found.setdefault(command, []).append(page.relative_to(PROJECT).as_posix())
    return found


def _of(page: Path) -> Iterator[str]:
    text = page.read_text(encoding="utf-8")
    code = [line.strip() for line in _code(text.splitlines())]
    joined = re.sub(r"\s*\\\n", " ", "\n".join(code))
    for line in joined.splitlines():
        # what stands behind two blanks or a sign of a comment says what the command does
        yield from _command(re.split(r"\s{2,}|\s#\s", line)[0])
    for inline in INLINE.findall("\n".join(_prose(text.splitlines()))):
        # a name alone is a word, not something to type
        if " " in inline.strip():
            yield from _command(inline)


def _command(text: str) -> Iterator[str]:
    line = " ".join(text.split())
    if PROGRAM.match(line):
        yield line


def _is_code(lines: list[str]) -> Iterator[tuple[str, bool]]:
    fenced = False
    for number, line in enumerate(lines):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            continue
        yield line, fenced or (line.startswith("    ") and _begins(lines, number))


def _begins(lines: list[str], number: int) -> bool:
    """Whether the indented lines around one stand behind an empty line, as code does."""
    while number > 0 and lines[number - 1].startswith("    "):
        number -= 1
    return number == 0 or not lines[number - 1].strip()


def _code(lines: list[str]) -> list[str]:
    return [line for line, code in _is_code(lines) if code]


def _prose(lines: list[str]) -> list[str]:
    return [line for line, code in _is_code(lines) if not code]
