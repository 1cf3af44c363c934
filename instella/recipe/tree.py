"""A YAML file as a tree of nodes that know their line.

Values stay text here; ``fields.py`` reads them by the type a setting asks for.
"""

import re
from pathlib import Path

import yaml

from instella.errors import BadUse
from instella.recipe.builder import TreeBuilder
from instella.recipe.nodes import Entries, bad_line

MAX_BYTES = 4 << 20

# libyaml is ten times faster; both parsers follow YAML 1.1 and give the same events.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# U+0085, U+2028 and U+2029 are line breaks to YAML 1.1 only: other tools count other lines.
_UNFIT = re.compile(r"[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def read_tree(path: Path) -> Entries:
    """The tree of a file that holds one mapping.

    A byte order mark at the start is left out.

    Raises:
        BadUse: the file cannot be read, is not UTF-8, not YAML, or uses what is refused.
    """
    file = str(path)
    text = _read_text(path)
    try:
        root = TreeBuilder(file).build(yaml.parse(text, Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        raise _not_yaml(file, text, error) from None
    if root is None:
        raise bad_line(file, 1, "the file is empty", "start from a copy of a shipped one")
    if not isinstance(root, Entries):
        cure = "write settings as 'key: value' lines"
        raise bad_line(file, root.line, "the file does not hold a mapping", cure)
    return root


def _read_text(path: Path) -> str:
    cure = "give the path of a YAML file such as recipes/tiny.yaml"
    if path.is_fifo():
        raise BadUse(f"{path}: a pipe, which may never end; {cure}")
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise BadUse(f"{path}: cannot be read ({reason}); {cure}") from None
    if len(data) > MAX_BYTES:
        raise bad_line(str(path), 1, f"the file is longer than {MAX_BYTES} bytes", "shorten it")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        what = f"byte 0x{data[error.start]:02x} is not UTF-8"
        raise bad_line(str(path), line, what, "save the file as UTF-8") from None
    unfit = _UNFIT.search(text)
    if unfit:
        line = text.count("\n", 0, unfit.start()) + 1
        what = f"the character U+{ord(unfit.group()):04X} is not allowed"
        raise bad_line(str(path), line, what, "remove it, or write it as an escape in quotes")
    return text


def _not_yaml(file: str, text: str, error: yaml.MarkedYAMLError) -> BadUse:
    mark = error.problem_mark or error.context_mark
    number = mark.line if mark else 0
    lines = text.split("\n")
    line = lines[number] if number < len(lines) else ""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return bad_line(file, number + 1, "a tab indents the line", "use blanks")
    cure = "mend this line or the one above it (indentation, a missing blank or quote)"
    return bad_line(file, number + 1, f"not YAML: {error.problem}", cure)
