"""A place in a bucket that speaks S3, by way of obstore (``./kit setup s3``).

Who asks, and where the service is, say AWS's variables: ``AWS_ACCESS_KEY_ID``,
``AWS_SECRET_ACCESS_KEY``, ``AWS_SESSION_TOKEN``, ``AWS_REGION``, ``AWS_ENDPOINT_URL``.
"""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from instella.artifacts.manifest import Entry
from instella.data.sources.hub_trouble import Trouble
from instella.errors import BadUse, KitError
from instella.remotes.remote import Absent, Body, Outgoing

# S3 takes parts from 5 MiB on, and up to 10,000 of a file.
PART_BYTES = 5 << 20
MAX_PARTS = 9_000


class Bucket:
    """Files below a prefix of a bucket. See ``Remote``.

    Each part is sent with its SHA-256, which the service compares. An object of S3 appears when
    all its parts have been joined, so a killed upload shows nothing; its parts stay with the
    service until a rule of the bucket removes them.
    """

    def __init__(self, bucket: str, prefix: str) -> None:
        try:
            import obstore
            from obstore.store import S3Store
        except ImportError:
            raise BadUse("s3:// needs a package of its own: call ./kit setup s3 first") from None
        self.shown = f"s3://{bucket}/{prefix}".rstrip("/")
        self._library: Any = obstore
        endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
        self._store: Any = S3Store(
            bucket,
            prefix=prefix or None,
            checksum_algorithm="SHA256",
            client_options={"allow_http": endpoint.startswith("http://")},
            # trouble is borne above, for all places alike
            retry_config={"max_retries": 0},
        )

    def size(self, name: str) -> int | None:
        try:
            with self._plain(name):
                return int(self._library.head(self._store, name)["size"])
        except Absent:
            return None

    @contextmanager
    def open(self, name: str, start: int = 0) -> Iterator[Body]:
        total = self.size(name)
        if total is None:
            raise Absent
        if start >= total:
            # S3 knows no empty range
            yield Body(start, total, iter(()))
            return
        with self._plain(name):
            answer = self._library.get(
                self._store, name, options={"range": {"offset": start}} if start else None
            )
        yield Body(start, total, self._chunks(name, answer))

    def _chunks(self, name: str, answer: Any) -> Iterator[bytes]:
        chunks = iter(answer)
        while True:
            with self._plain(name):
                chunk = next(chunks, None)
            if chunk is None:
                return
            yield bytes(chunk)

    def put(self, name: str, file: Path, entry: Entry) -> None:
        part = max(PART_BYTES, -(-entry.size // MAX_PARTS))
        with Outgoing(file, entry) as data:
            if entry.size <= part:
                self.put_bytes(name, data.read(-1))
                return
            with self._sending(name):
                self._library.put(
                    self._store, name, iter(data.read, b""), use_multipart=True, chunk_size=part
                )

    def put_bytes(self, name: str, data: bytes) -> None:
        with self._sending(name):
            self._library.put(self._store, name, data, use_multipart=False)

    def guarded(self) -> AbstractContextManager[None]:
        return nullcontext()

    @contextmanager
    def _sending(self, name: str) -> Iterator[None]:
        try:
            with self._plain(name):
                yield
        except Absent:
            raise KitError(f"{self.shown}: there is no such bucket; make it first") from None

    @contextmanager
    def _plain(self, name: str) -> Iterator[None]:
        """Errors of the library as ours; its texts hold addresses and requests."""
        exceptions = self._library.exceptions
        try:
            yield
        except (FileNotFoundError, exceptions.NotFoundError):
            raise Absent from None
        except (
            PermissionError,
            exceptions.PermissionDeniedError,
            exceptions.UnauthenticatedError,
        ):
            raise KitError(
                f"{self.shown}/{name}: no access; check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, "
                "AWS_REGION and the rights to the bucket"
            ) from None
        except exceptions.BaseError as error:
            raise Trouble(f"{type(error).__name__} from {self.shown}") from None
