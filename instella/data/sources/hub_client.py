"""Requests to the hub, through the session, token and addresses of huggingface_hub.

What the library leaves open is done here: the token goes to no other origin than the
endpoint's, every request is repeated on passing trouble, and what is final is one line
that holds neither the token nor a signed address.
"""

import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

from huggingface_hub import constants, get_token, hf_hub_url
from huggingface_hub.errors import HTTPError, OfflineModeIsEnabled
from huggingface_hub.utils import get_session, parse_ratelimit_headers

from instella.canonical import parse_json
from instella.data.sources.hub_trouble import SILENT_WAITS, NoAccess, Patience, Trouble
from instella.errors import BadUse, KitError, VerificationError

MAX_REDIRECTS = 10
MAX_JSON_BYTES = 1 << 26
SMALL_BYTES = 1 << 16
TRANSIENT_STATUS = (408, 425, 429, 500, 502, 503, 504)
REDIRECT_STATUS = (301, 302, 303, 307, 308)
_PORTS = {"http": 80, "https": 443}
# What the library carries without an error of another kind on the way: labels of a host
# in ASCII, and addresses below its limit. HTTP has no number of more digits.
MAX_ADDRESS = 1 << 15
MAX_DIGITS = 18
_HOST = re.compile(r"[0-9A-Za-z_-]{1,63}(\.[0-9A-Za-z_-]{1,63})*\.?|[0-9a-f]*:[0-9a-f:.]+")


@dataclass(frozen=True)
class Repository:
    """A repository at a revision: ``kind`` is ``dataset`` or ``model``."""

    name: str
    kind: str
    revision: str

    @property
    def page(self) -> str:
        """Its public page, where terms are accepted."""
        prefix = constants.REPO_TYPES_URL_PREFIXES.get(self.kind, "")
        return f"{constants.HUGGINGFACE_CO_URL_HOME}{prefix}{self.name}"


@dataclass(frozen=True)
class Body:
    """An answer that carries a file.

    Attributes:
        start: place of the first byte in the file.
        length: bytes that follow, None where the server does not say.
        linked: SHA-256 of the whole file as the hub states it, None where it does not.
        chunks: the bytes; raises ``Trouble`` when they stop coming.
    """

    start: int
    length: int | None
    linked: str | None
    chunks: Iterator[bytes]


class Client:
    """One endpoint with one token; may be shared by threads.

    Args:
        stop: set to end all waiting.
        say: told of trouble before ``json`` asks again.
    """

    def __init__(
        self, stop: threading.Event, say: Callable[[str], None] = lambda line: None
    ) -> None:
        self.stop = stop
        self._say = say
        self._is_answered = False
        self.endpoint = _endpoint()
        # Not the library's build_hf_headers, which asks the endpoint for a list of its own
        # and tells it which programs run here.
        token = None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else get_token()
        self._headers = {
            "user-agent": "instella-kit",
            # Packed answers have neither the file's length nor its byte positions.
            "accept-encoding": "identity",
        }
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"

    @property
    def has_token(self) -> bool:
        """Whether requests to the endpoint carry a token."""
        return "authorization" in self._headers

    def file_url(self, repository: Repository, path: str) -> str:
        """The address of a file."""
        return hf_hub_url(
            repository.name,
            path,
            repo_type=repository.kind,
            revision=repository.revision,
            endpoint=self.endpoint,
        )

    def api_url(self, repository: Repository, *parts: str) -> str:
        """An address of the API below the repository."""
        tail = "/".join(quote(part, safe="") for part in parts)
        return f"{self.endpoint}/api/{repository.kind}s/{repository.name}/{tail}"

    @contextmanager
    def body(
        self, repository: Repository, path: str, start: int, end: int | None = None
    ) -> Iterator[Body]:
        """Ask for a file's bytes from ``start`` (to ``end``, which is left out) on.

        Raises:
            Trouble: passing; ask again.
            KitError: final, with the reason.
        """
        what = f"{repository.name}/{path}"
        wanted = {} if (start, end) == (0, None) else {"range": _range(start, end)}
        with self._answer(self.file_url(repository, path), wanted, repository, what) as answer:
            response, linked = answer
            yield Body(
                start=_start(response, what),
                length=_length(response),
                linked=linked,
                chunks=_chunks(response),
            )

    def json(self, url: str, repository: Repository) -> tuple[Any, str | None]:
        """A JSON answer of the API and the address of the next page; repeats on trouble.

        Raises:
            KitError: final, or trouble that does not pass.
        """
        what = repository.name
        patience = Patience(self.stop, what, self._say, SILENT_WAITS)
        while True:
            try:
                with self._answer(url, {}, repository, what) as (response, _):
                    data = bytearray()
                    for chunk in _chunks(response):
                        data += chunk
                        if len(data) > MAX_JSON_BYTES:
                            raise VerificationError(f"{what}: the hub's answer has no end")
                    link = response.links.get("next", {}).get("url")
                    return parse_json(bytes(data), f"{what}: the hub's answer"), link
            except Trouble as trouble:
                patience.wait(trouble)

    @contextmanager
    def _answer(
        self, url: str, wanted: Mapping[str, str], repository: Repository, what: str
    ) -> Iterator[tuple[Any, str | None]]:
        """A good answer at the end of all redirects, and the SHA-256 that the hub states."""
        headers = {**self._headers, **wanted}
        linked: str | None = None
        try:
            for _ in range(MAX_REDIRECTS):
                if not _is_address(url):
                    raise VerificationError(
                        f"{what}: the hub points to an address of no known kind"
                    )
                if _origin(url) != _origin(self.endpoint):
                    headers.pop("authorization", None)
                with get_session().stream(
                    "GET",
                    url,
                    headers=headers,
                    timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT,
                    follow_redirects=False,
                ) as response:
                    self._is_answered = True
                    linked = linked or _linked(response)
                    if response.status_code not in REDIRECT_STATUS:
                        self._check(response, repository, what)
                        yield response, linked
                        return
                    if (_length(response) or SMALL_BYTES) < SMALL_BYTES:
                        # Read to its end, a connection serves the next file too.
                        response.read()
                    url = _joined(url, response.headers.get("location", ""))
        except OfflineModeIsEnabled:
            raise VerificationError(
                f"{what}: not here yet, and HF_HUB_OFFLINE is set; unset it to fetch"
            ) from None
        except HTTPError as error:
            silent = not self._is_answered
            raise Trouble(f"{type(error).__name__} from {self.shown}", is_silent=silent) from None
        raise VerificationError(f"{what}: more than {MAX_REDIRECTS} redirects from {self.shown}")

    @property
    def shown(self) -> str:
        """The endpoint without credentials, for messages."""
        parts = urlsplit(self.endpoint)
        return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")

    def _check(self, response: Any, repository: Repository, what: str) -> None:
        status = response.status_code
        if status in (200, 206):
            return
        code = response.headers.get("x-error-code", "")
        away = _origin(str(response.url)) != _origin(self.endpoint)
        # A signed address that ran out; the hub gives a new one when asked again.
        if status in TRANSIENT_STATUS or (status == 403 and away):
            raise Trouble(f"HTTP {status} from {self.shown}", _retry_after(response.headers))
        raise self._final(status, code, response.headers, repository, what)

    def _final(
        self, status: int, code: str, headers: Mapping[str, str], repository: Repository, what: str
    ) -> KitError:
        if code == "GatedRepo":
            cure = (
                "the account of your HF_TOKEN has not been let in: accept the terms at "
                if self.has_token
                else "set HF_TOKEN to a token of an account that accepted the terms at "
            )
            return NoAccess(f"{what}: gated; {cure}{repository.page}")
        if code == "RevisionNotFound":
            return VerificationError(
                f"{what}: {self.shown} has no revision {repository.revision}; it was removed or "
                "never existed: run `instella data lock` for another one"
            )
        if code == "EntryNotFound":
            return VerificationError(
                f"{what}: {self.shown} has no such file at revision {repository.revision}"
            )
        if status == 401 and self.has_token and "credentials" in headers.get("x-error-message", ""):
            return NoAccess(f"{what}: {self.shown} does not know this HF_TOKEN; renew or unset it")
        if status == 416:
            return VerificationError(f"{what}: the hub's file is shorter than the lock says")
        if status in (401, 403):
            return NoAccess(
                f"{what}: {self.shown} answers HTTP {status}: no such repository, or a private or "
                f"gated one; look at {repository.page} and set HF_TOKEN to a token that may read it"
            )
        return VerificationError(
            f"{what}: {self.shown} answers HTTP {status}; check repository, revision and HF_ENDPOINT"
        )


def _endpoint() -> str:
    endpoint = (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")
    if not _is_address(endpoint):
        raise BadUse("HF_ENDPOINT is no address; write it as https://HOST, or unset it")
    return endpoint


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)


def _joined(url: str, location: str) -> str:
    """Where a redirect leads; no address when it makes none."""
    try:
        return urljoin(url, location)
    except ValueError:
        return ""


def _is_address(url: str) -> bool:
    try:
        scheme, host, _ = _origin(url)
    except ValueError:
        return False
    good = scheme in _PORTS and _HOST.fullmatch(host or "") is not None
    return good and url.isprintable() and len(url) <= MAX_ADDRESS


def _length(response: Any) -> int | None:
    """Bytes that the body has, None where they are packed or the server does not say."""
    if response.headers.get("content-encoding", "identity") != "identity":
        return None
    return _number(response.headers.get("content-length"))


def _range(start: int, end: int | None) -> str:
    return f"bytes={start}-" if end is None else f"bytes={start}-{end - 1}"


def _start(response: Any, what: str) -> int:
    """Where the body begins: 0 for a whole file, else what Content-Range says."""
    if response.status_code == 200:
        return 0
    unit, _, rest = response.headers.get("content-range", "").partition(" ")
    start = _number(rest.partition("-")[0])
    if unit != "bytes" or start is None or response.headers.get("content-encoding"):
        raise VerificationError(f"{what}: the server sends a part without saying which")
    return start


def _number(text: str | None) -> int | None:
    good = text is not None and text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS
    return int(text) if text is not None and good else None


def _linked(response: Any) -> str | None:
    """The SHA-256 that the hub states for a large file; other files have another tag."""
    tag = response.headers.get("x-linked-etag", "").strip('"')
    return tag if len(tag) == 64 and set(tag) <= set("0123456789abcdef") else None


def _chunks(response: Any) -> Iterator[bytes]:
    try:
        yield from response.iter_bytes()
    except HTTPError as error:
        raise Trouble(f"cut off ({type(error).__name__})") from None


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server asks to wait: a number, a date, or the hub's own header."""
    value = headers.get("retry-after", "")
    seconds = _number(value)
    if seconds is not None:
        return float(seconds)
    if value:
        try:
            return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
        except (TypeError, ValueError):
            return None
    limits = parse_ratelimit_headers(headers)
    return float(limits.reset_in_seconds) if limits and limits.remaining == 0 else None
