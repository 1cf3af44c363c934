"""Results in a bucket: against a server that speaks S3, with the library that users add."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import requests

from instella.prove.copies import PROJECT

pytestmark = pytest.mark.slow

SECRET = "never-to-be-seen"
SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from instella.errors import KitError
from instella.canonical import sha256_bytes
from instella.artifacts.manifest import Entry
from instella.data.sources import hub_trouble
from instella.remotes.remote import open_remote
from artifacts.store_server import store_files
from artifacts.test_store_remote import assert_whole, object_of, pull, push
from artifacts.toy import Project, make_graph

hub_trouble.WAIT_SECONDS = (0.01,)
folder, url = Path(sys.argv[2]), "s3://bucket/some/store"
made = Project(folder / "made", make_graph(text="one two " * 900_000))
made.run_all()
first = push(made, url, read_back=True)
assert (first.stages, first.objects) == (4, 5)
assert push(made, url).objects == 0
remote = open_remote(url)
for name, data in store_files(made.store.root).items():
    assert remote.size(name) == len(data), name
other = Project(folder / "other", made.graph)
done, _ = pull(other, url)
assert done.here == list(made.graph) and not done.damage
assert_whole(other, made)

# A beginning that is here already is not fetched again.
text = object_of(made, "source", "text.txt")
third = Project(folder / "third", made.graph)
(third.store.root / "tmp").mkdir(parents=True)
part = third.store.root / "tmp" / f"part-{text[10:]}"
part.write_bytes((made.store.root / text).read_bytes()[:6_000_000])
done, said = pull(third, url)
assert done.here == list(made.graph), said

# A bad object is named; bytes that are not those of their name are not sent whole.
words = object_of(made, "words", "words.txt")
remote.put_bytes(words, b"rotten")
done, _ = pull(Project(folder / "fourth", made.graph), url)
assert [item.path for item in done.damage] == [words] and done.damage[0].makers == ("words",)
wrong = folder / "wrong"
wrong.write_bytes(bytes(12_000_000))
for size in (12_000_000, 1000):
    try:
        remote.put("sha256/00/wrong", wrong, Entry("0" * 64, size))
    except KitError as error:
        assert "not sent whole" in str(error)
    assert remote.size("sha256/00/wrong") is None
try:
    open_remote("s3://elsewhere/x").put_bytes("a", b"1")
except KitError as error:
    assert "no such bucket" in str(error)
print("all is well")
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a server with an empty bucket."""
    done = subprocess.run(
        [PROJECT / "kit", "setup", "s3-server"], capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    log = (tmp_path_factory.mktemp("s3") / "log").open("wb")
    python = PROJECT / ".venvs" / "s3-server" / "bin" / "python"
    process = subprocess.Popen(
        [python, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log
    )
    try:
        for _ in range(600):
            with suppress(requests.ConnectionError):
                if requests.put(f"{url}/bucket", timeout=10).status_code == 200:
                    break
            assert process.poll() is None
            time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``./kit setup s3`` adds, in a folder of its own: other tests run without it."""
    folder = tmp_path_factory.mktemp("library")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    lock = PROJECT / "requirements" / "s3.lock"
    subprocess.run([*command, "--target", folder, "-r", lock], check=True, timeout=600)
    return folder


def test_a_bucket_takes_a_run_and_gives_it(server: str, library: Path, tmp_path: Path) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}
    tests = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, tests, str(tmp_path)], capture_output=True, text=True,
        cwd=PROJECT, timeout=500,
        env={**os.environ, **keys, "AWS_ENDPOINT_URL": server, "PYTHONPATH": str(library)},
    )  # fmt: skip
    assert done.stdout == "all is well\n", done.stdout + done.stderr
    assert SECRET not in done.stderr


def test_without_the_library_it_says_what_to_call() -> None:
    code = "from instella.remotes.remote import open_remote\nopen_remote('s3://bucket/x')"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.modules['obstore'] = None\n{code}"],
        capture_output=True, text=True, cwd=PROJECT, timeout=100,
    )  # fmt: skip
    assert "./kit setup s3" in done.stderr
