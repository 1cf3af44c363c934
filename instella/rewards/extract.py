"""The last boxed answer of a text: one pass over it, whatever it holds."""

import re

_COMMAND = re.compile(r"\\(?:boxed|fbox)(?![a-zA-Z])\s*")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_BARE = re.compile(r"[^\s$]+")


def last_boxed(text: str) -> str | None:
    r"""The content of the last ``\boxed`` or ``\fbox`` of ``text``, without outer blanks.

    ``\boxed{...}`` may hold nested braces (escaped ones, ``\{``, do not count);
    ``\boxed 5`` holds everything up to the next blank or ``$``. Only the last command
    counts: when its braces do not close, as in a cut answer, there is no answer.

    Returns:
        The content, which may be empty (``\boxed{}``); None without a closed box.
    """
    start = None
    for match in _COMMAND.finditer(text):
        start = match.end()
    if start is None:
        return None
    if text.startswith("{", start):
        return _balanced(text, start)
    bare = _BARE.match(text, start)
    return bare.group() if bare else None


def _balanced(text: str, start: int) -> str | None:
    depth = 0
    for match in _BRACE.finditer(text, start):
        if match.group() == "{":
            depth += 1
        elif match.group() == "}":
            depth -= 1
            if depth == 0:
                return text[start + 1 : match.start()].strip()
    return None
