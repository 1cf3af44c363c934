"""A place in a bucket that speaks S3, by way of fsspec and s3fs (``./kit setup s3``).

Who asks, and where the service is, say the usual variables and files of AWS's library.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import fsspec

from instella.artifacts.manifest import Entry
from instella.data.sources.hub_cache import CHUNK_BYTES
from instella.data.sources.hub_trouble import Trouble
from instella.errors import BadUse, KitError
from instella.remotes.remote import Absent, Body, Outgoing

# Of a part of an upload; S3 takes up to 10,000 parts, so files up to 500 GB.
BLOCK_BYTES = 50 << 20


class Bucket:
    """Files below a prefix of a bucket. See ``Remote``.

    An object of S3 appears when its upload has been completed, so a killed one shows nothing;
    its parts stay with the service until it removes them.
    """

    def __init__(self, bucket: str, prefix: str) -> None:
        self._base = f"{bucket}/{prefix}" if prefix else bucket
        self.shown = f"s3://{self._base}"
        try:
            self._fs: Any = fsspec.filesystem("s3", use_listings_cache=False)
        except ImportError:
            raise BadUse("s3:// needs packages of its own: call ./kit setup s3 first") from None

    def size(self, name: str) -> int | None:
        with self._plain(name):
            try:
                return int(self._fs.info(f"{self._base}/{name}", refresh=True)["size"])
            except FileNotFoundError:
                return None

    @contextmanager
    def open(self, name: str, start: int = 0) -> Iterator[Body]:
        total = self.size(name)
        if total is None:
            raise Absent
        yield Body(start, total, self._chunks(name, start, total))

    def _chunks(self, name: str, start: int, total: int) -> Iterator[bytes]:
        while start < total:
            end = min(start + 8 * CHUNK_BYTES, total)
            with self._plain(name):
                data = self._fs.cat_file(f"{self._base}/{name}", start=start, end=end)
            if not data:
                return
            start += len(data)
            yield data

    def put(self, name: str, file: Path, entry: Entry) -> None:
        with self._plain(name), Outgoing(file, entry) as data:
            if entry.size <= BLOCK_BYTES:
                self._fs.pipe_file(f"{self._base}/{name}", data.read(-1))
                return
            target = self._fs.open(
                f"{self._base}/{name}", "wb", block_size=BLOCK_BYTES, autocommit=False
            )
            try:
                while chunk := data.read():
                    target.write(chunk)
                target.close()
            except BaseException:
                target.discard()
                raise
            target.commit()

    def put_bytes(self, name: str, data: bytes) -> None:
        with self._plain(name):
            self._fs.pipe_file(f"{self._base}/{name}", data)

    def guarded(self) -> AbstractContextManager[None]:
        return nullcontext()

    @contextmanager
    def _plain(self, name: str) -> Iterator[None]:
        """Errors of the libraries as ours; their texts may hold addresses and keys."""
        try:
            yield
        except (FileNotFoundError, KitError):
            raise
        except PermissionError:
            raise KitError(
                f"{self.shown}/{name}: no access; check the keys in the environment and the rights "
                "to the bucket"
            ) from None
        except Exception as error:
            # s3fs passes on errors of three libraries, which share no base
            if isinstance(error, OSError) or type(error).__module__.startswith(_LIBRARIES):
                raise Trouble(f"{type(error).__name__} from {self.shown}") from None
            raise


_LIBRARIES = ("botocore", "aiobotocore", "aiohttp", "asyncio", "fsspec", "builtins.Timeout")
