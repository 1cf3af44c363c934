"""Looks in what is published for what must not be there.

Two kinds of words are looked for. *Secrets*: passwords, tokens and keys of this user's environment
and files, the signing key among them. *Traces*: home, project, results and store folders; the
name of user and machine. A trace that also stands in what everybody has (the recipe, the
kit's code, the bytes of sources and imported checkpoints) tells nothing and is not looked for.

What is not found: a secret in another spelling than as it is, in JSON or in a URL, compressed,
or unknown to this user's environment. Journals and logs name machines on purpose and are not
looked at; they are no part of what is published (docs/statements.md).
"""

import configparser
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

MIN_SECRET = 8
MIN_TRACE = 3
# A name of so few letters may stand in any weights by chance: there only longer ones count.
MIN_IN_BINARY = 8
BINARY = (".safetensors", ".npy")
BLOCK = 1 << 22
MAX_FILE = 1 << 16

_SECRET_NAME = re.compile(
    r"TOKEN(?!IZ)|SECRET|PASSW|PASSPHRASE|CREDENTIAL|API_?KEY|ACCESS_KEY|PRIVATE_KEY|AUTH(?!OR)",
    re.I,
)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>]+")
_WORD = rb"(?<![A-Za-z0-9_])%s(?![A-Za-z0-9_])"


@dataclass(frozen=True)
class Word:
    """Something to look for.

    Attributes:
        what: what it is, without saying it.
        texts: its spellings.
        is_secret: a secret; otherwise a trace.
        is_name: only as a whole word, and reported, not refused.
    """

    what: str
    texts: tuple[bytes, ...]
    is_secret: bool
    is_name: bool = False


@dataclass(frozen=True)
class Found:
    """A word in a file; ``file`` as the caller calls it."""

    file: str
    word: Word

    def __str__(self) -> str:
        return f"{self.file}: holds {self.word.what}"


def secrets_of(environment: Mapping[str, str], key: bytes = b"") -> list[Word]:
    """Secrets of the environment, and of the files in which tools keep them.

    Args:
        environment: variables; those whose name says so count, and passwords in addresses.
        key: private key in PEM that signs.
    """
    words = []
    for name, value in sorted(environment.items()):
        if _SECRET_NAME.search(name) and not os.path.exists(value):
            words.append(_secret(f"the value of {name}", value))
        for url in _URL.findall(value):
            words += [_secret(f"a password in {name}", text) for text in _in_url(url)]
    home = Path(environment.get("HOME", "/nonexistent"))
    hub = Path(environment.get("HF_HOME", home / ".cache" / "huggingface"))
    token = Path(environment.get("HF_TOKEN_PATH", hub / "token"))
    words.append(_secret(f"the token in {token.name} of the hub", _text(token).strip()))
    aws = Path(environment.get("AWS_SHARED_CREDENTIALS_FILE", home / ".aws" / "credentials"))
    words += [_secret("a key in the credentials of AWS", text) for text in _ini_values(_text(aws))]
    lines = key.decode("ascii", "replace").splitlines()[1:-1]
    words += [_secret("a line of the private key", line) for line in lines]
    kept: dict[tuple[bytes, ...], Word] = {}
    for word in words:
        if len(word.texts[0]) >= MIN_SECRET:
            kept.setdefault(word.texts, word)
    return list(kept.values())


def _in_url(url: str) -> Iterator[str]:
    """Password, or user where it stands alone, and values of telling parameters."""
    try:
        parts = urlsplit(url)
        secret = parts.password or (parts.username if parts.password is None else None)
    except ValueError:
        return
    if secret:
        yield unquote(secret)
    for pair in re.split(r"[&;]", parts.query):
        name, _, value = pair.partition("=")
        if re.search(r"token|secret|key|sig|password", name, re.I):
            yield unquote(value)


def _ini_values(text: str) -> Iterator[str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(text)
    except configparser.Error:
        return
    for section in parser.sections():
        yield from parser[section].values()


def _text(path: Path) -> str:
    """A small file of the user; nothing if there is none that can be read."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_FILE).decode("utf-8", "replace")
    except OSError:
        return ""


def traces_of(paths: Mapping[str, Path], user: str, host: str) -> list[Word]:
    """Traces of this machine.

    Args:
        paths: what a folder is to the folder.
        user, host: names.
    """
    words = []
    for what, path in paths.items():
        for text in dict.fromkeys((str(path), str(path.resolve()))):
            if path.is_absolute() and len(text) > MIN_TRACE:
                words.append(Word(f"the path of {what}", _spellings(text), False))
    for what, text in (("the name of the user", user), ("the name of the machine", host)):
        if len(text) >= MIN_TRACE:
            words.append(Word(what, _spellings(text), False, is_name=True))
    return words


def _secret(what: str, text: str) -> Word:
    return Word(what, _spellings(text), True)


def _spellings(text: str) -> tuple[bytes, ...]:
    forms = (text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], quote(text))
    return tuple(dict.fromkeys(form.encode("utf-8", "surrogateescape") for form in forms))


def without_common(words: Iterable[Word], public: Iterable[Path]) -> list[Word]:
    """The words but for traces that stand in files which everybody has.

    Args:
        words: any.
        public: those files.
    """
    words = list(words)
    traces = [word for word in words if not word.is_secret]
    loose = [Word(word.what, word.texts, False) for word in traces]
    common: set[tuple[bytes, ...]] = set()
    for path in public:
        left = [word for word in loose if word.texts not in common]
        common |= {found.texts for found in in_file(path, left, is_binary=False)}
    return [word for word in words if word.is_secret or word.texts not in common]


def in_file(path: Path, words: Iterable[Word], is_binary: bool) -> list[Word]:
    """Those of the words that a file holds; memory stays flat.

    Args:
        path: the file.
        words: what to look for.
        is_binary: short names do not count.
    """
    left = [word for word in words if not (is_binary and word.is_name and _is_short(word))]
    found: list[Word] = []
    overlap = max((len(text) for word in left for text in word.texts), default=0) + 1
    with path.open("rb") as file:
        tail = b""
        while left and (block := file.read(BLOCK)):
            data = tail + block
            here = [word for word in left if in_bytes(data, word)]
            found += here
            left = [word for word in left if word not in here]
            tail = data[-overlap:]
    return found


def in_bytes(data: bytes, word: Word) -> bool:
    """Whether bytes hold a word in one of its spellings."""
    for text in word.texts:
        if text in data and (not word.is_name or re.search(_WORD % re.escape(text), data)):
            return True
    return False


def _is_short(word: Word) -> bool:
    return len(word.texts[0]) < MIN_IN_BINARY
