"""One HTML file that needs nothing else: templates, style, scripts and data put together.

Every value of a run is untrusted. Templates escape by themselves, data stands as JSON in
blocks that no browser executes, and the policy in the head allows only the scripts and the
style whose SHA-256 it names, so that nothing else runs and nothing is fetched.

What differs between two executions of equal bytes stands between two markers; the rest is the
page's content part, which is the same for the same run.
"""

import base64
import hashlib
from functools import cache
from importlib.resources import files as resources
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from instella.canonical import json_bytes, sha256_bytes
from instella.errors import VerificationError
from instella.plan.report import scaled

VOLATILE_BEGIN = b"<!-- of this execution -->"
VOLATILE_END = b"<!-- end of this execution -->"
TEMPLATES = ("base.html", "macros.html", "run.html", "pair.html")
# uPlot 1.6.32 from npm, MIT licence; see assets/uPlot.LICENSE.
VENDORED = {
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}
SHORT = 12
_FOLDER = "instella.report"


def render(template: str, content: dict[str, Any], volatile: dict[str, Any]) -> bytes:
    """The page's bytes.

    Args:
        template: ``run.html`` or ``pair.html``.
        content: what the template shows; ``charts`` is what the script draws.
        volatile: what differs between executions.
    """
    style = _asset("uPlot.min.css") + _asset("page.css")
    scripts = [_asset("uPlot.iife.min.js"), _asset("page.js")]
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src {' '.join(_source(script) for script in scripts)}",
            f"style-src {_source(style)}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    # ours, and neither holds the end of its own element
    trusted = {"style": Markup(style), "scripts": [Markup(script) for script in scripts]}
    text = (
        _environment()
        .get_template(template)
        .render(policy=policy, c=content, v=volatile, **trusted)
    )
    return text.encode("utf-8")


def content_hash(page: bytes) -> str:
    """SHA-256 of a page without what differs between executions, 64 hex digits.

    Raises:
        VerificationError: the page has not exactly one such part.
    """
    before, begin, rest = page.partition(VOLATILE_BEGIN)
    _, end, after = rest.partition(VOLATILE_END)
    if not begin or not end or VOLATILE_BEGIN in after or VOLATILE_END in after:
        raise VerificationError("not a page of the kit: it needs one part of this execution")
    return sha256_bytes(before + after)


def script_json(value: Any) -> Markup:
    """Canonical JSON that can stand in a script element, whatever its strings hold."""
    text = json_bytes(value).decode("utf-8").rstrip("\n")
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(text)


@cache
def _asset(name: str) -> str:
    data = resources(_FOLDER).joinpath("assets", name).read_bytes()
    if name in VENDORED and sha256_bytes(data) != VENDORED[name]:
        raise VerificationError(f"assets/{name}: is not the published file; restore it")
    return data.decode("utf-8")


def _source(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


@cache
def _environment() -> Environment:
    folder = resources(_FOLDER).joinpath("templates")
    texts = {name: folder.joinpath(name).read_text(encoding="utf-8") for name in TEMPLATES}
    environment = Environment(
        loader=DictLoader(texts), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {
        "bytes": lambda count: scaled(count, "B"),
        "scaled": scaled,
        "short": lambda text: text[:SHORT],
        "number": lambda value: f"{value:.6g}",
        "score": lambda value: f"{value:.4f}",
        "value": lambda value: json_bytes(value).decode("utf-8").rstrip("\n"),
        "script_json": script_json,
    }
    environment.globals |= {
        "volatile_begin": Markup(VOLATILE_BEGIN.decode("ascii")),
        "volatile_end": Markup(VOLATILE_END.decode("ascii")),
    }
    return environment
