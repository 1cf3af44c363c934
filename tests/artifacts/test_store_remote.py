"""Results sent to and taken from folders and web servers, with faults on the way."""

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from data_sources.hub_server import Fault

from instella.artifacts.identity import identity_key
from instella.artifacts.manifest import Manifest, parse_manifest
from instella.artifacts.store import Store
from instella.artifacts.store_gc import Reached, collect
from instella.artifacts.store_verify import verify
from instella.canonical import json_bytes, sha256_bytes
from instella.data.sources import hub_trouble
from instella.errors import BadUse, Incomplete, KitError, VerificationError
from instella.progress import Reporter
from instella.remotes import fetch
from instella.remotes.pull import Pull, Pulled
from instella.remotes.push import Push, Pushed
from instella.remotes.remote import open_remote

from .store_server import PASSWORD, USER, serving_store, store_files
from .toy import Cut, Project, die_at, in_child, make_graph

LARGE = 3 << 20


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_trouble, "WAIT_SECONDS", (0.01, 0.01))


@pytest.fixture
def made(tmp_path: Path) -> Project:
    """A finished toy run; its source has some text that goes over the line in many pieces."""
    words = " ".join(str(number) for number in range(LARGE // 7))
    project = Project(tmp_path / "made", make_graph(text=words))
    project.run_all()
    return project


@pytest.fixture
def other(made: Project, tmp_path: Path) -> Project:
    """Another machine with the same tree and recipe, and nothing done yet."""
    return Project(tmp_path / "other", made.graph)


def push(project: Project, url: str, *names: str, read_back: bool = False) -> Pushed:
    said = io.StringIO()
    job = Push(
        open_remote(url), project.store, project.graph, project.results,
        Reporter("push", stream=said), read_back,
    )  # fmt: skip
    return job.run(names)


def pull(
    project: Project, url: str, *names: str, recorded: dict[str, str] | None = None
) -> tuple[Pulled, str]:
    said = io.StringIO()
    job = Pull(
        open_remote(url), project.store, project.graph, project.toolchain(), recorded or {},
        Reporter("pull", stream=said),
    )  # fmt: skip
    return job.run(names), said.getvalue()


def assert_whole(other: Project, made: Project) -> None:
    """What was pulled is what was made, and a run finds it all."""
    assert verify(other.store)[0] == []
    other.run_all()
    assert other.computed == []
    assert other.manifest_bytes() == made.manifest_bytes()


def object_of(project: Project, stage: str, path: str) -> str:
    digest = project.manifest_bytes()[stage]
    entry = parse_manifest(digest, stage).files[path]
    return f"sha256/{entry.sha256[:2]}/{entry.sha256}"


def record_of(project: Project, stage: str) -> str:
    return (
        f"actions/{identity_key(parse_manifest(project.manifest_bytes()[stage], stage).identity)}"
    )


def test_a_folder_takes_a_run_and_gives_it(made: Project, other: Project, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/there"
    first = push(made, url, read_back=True)
    assert (first.stages, first.objects) == (4, 5)
    assert store_files(tmp_path / "there") == store_files(made.store.root)
    assert push(made, url).objects == 0
    done, _ = pull(other, url)
    assert done.here == list(made.graph) and not done.damage and not done.absent
    assert done.objects == 5
    assert_whole(other, made)
    assert pull(other, url)[0].objects == 0
    assert not list((tmp_path / "there" / "tmp").iterdir())


def test_a_stage_brings_all_that_it_is_made_from(
    made: Project, other: Project, tmp_path: Path
) -> None:
    url = f"file://{tmp_path}/there"
    assert push(made, url, "words").stages == 2
    done, _ = pull(other, url, "words")
    assert done.here == ["source", "words"]
    done, _ = pull(other, url)
    assert done.here == ["source", "words"] and done.absent == ["side", "total"]


def test_a_web_server_of_a_store_is_a_place(made: Project, other: Project) -> None:
    with serving_store(store_files(made.store.root)) as server:
        done, _ = pull(other, server.url)
        assert done.here == list(made.graph)
        assert_whole(other, made)
        count = len(server.log)
        pull(other, server.url)
        assert len(server.log) == count, "what is here is not asked for"
        with pytest.raises(KitError, match="takes no PUT"):
            (made.results / "x").mkdir()
            del server.files[record_of(made, "total")]
            del server.files[object_of(made, "total", "total.txt")]
            push(made, server.url)


def test_a_server_that_takes_put(made: Project, other: Project) -> None:
    with serving_store({}, takes_put=True) as server:
        assert push(made, server.url).objects == 5
        assert server.files == store_files(made.store.root)
        assert list(server.files)[-1] == record_of(made, "total"), "the record goes last"
        pull(other, server.url)
        assert_whole(other, made)


@pytest.mark.parametrize(
    "fault",
    [
        Fault("cut", at=1000),
        Fault("reset", at=100_000),
        Fault("status", 503, headers={"Retry-After": "0"}),
        Fault("unranged"),
        Fault("unstated", at=5000),
        Fault("wrong", body=b"x" * LARGE),
    ],
    ids=lambda fault: fault.kind,
)
def test_what_may_pass_is_borne(made: Project, other: Project, fault: Fault) -> None:
    with serving_store(store_files(made.store.root)) as server:
        name = object_of(made, "source", "text.txt")
        server.faults[name] = [fault]
        done, said = pull(other, server.url)
        assert done.here == list(made.graph) and not done.damage, said
        asked = [entry.range for entry in server.log if entry.path == f"GET {name}"]
        if fault.kind in ("cut", "reset", "unstated"):
            assert len(asked) == 2 and asked[1] != "bytes=0-" and asked[1] is not None
        assert_whole(other, made)


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        (Fault("wrong", body=b"y" * 10, times=9), "found 10 bytes"),
        (Fault("endless", times=9), "found more than"),
        (None, "found nothing"),
        (Fault("wrong", times=9), "found sha256"),
    ],
    ids=["short", "endless", "missing", "other bytes"],
)
def test_a_bad_object_is_named_with_what_reads_it(
    made: Project, other: Project, fault: Fault | None, found: str
) -> None:
    with serving_store(store_files(made.store.root)) as server:
        name = object_of(made, "words", "words.txt")
        if fault is None:
            del server.files[name]
        else:
            if found == "found sha256":
                fault.body = bytes(len(server.files[name]))
            server.faults[name] = [fault]
        done, _ = pull(other, server.url)
        (damage,) = done.damage
        assert str(damage).startswith(f"{name}: ") and found in str(damage)
        assert damage.makers == ("words",) and damage.readers == ("total",)
        assert done.here == ["source", "side", "total"]
        assert verify(other.store)[0] == [] and not other.store.object_path(name[10:]).exists()
        if fault is not None:
            del server.faults[name]
            assert pull(other, server.url)[0].here == list(made.graph)


def test_a_bad_object_here_is_fetched_again(made: Project, other: Project) -> None:
    with serving_store(store_files(made.store.root)) as server:
        pull(other, server.url)
        name = object_of(made, "words", "words.txt")
        path = other.store.root / name
        path.chmod(0o644)
        path.write_bytes(b"rotten   ")
        done, _ = pull(other, server.url)
        assert done.objects == 1
        assert path.read_bytes() == server.files[name]


def test_a_dead_server_ends_in_one_line(other: Project) -> None:
    with serving_store({}) as server:
        url = server.url
    with pytest.raises(KitError, match="ConnectionError from http") as caught:
        pull(other, url)
    assert "\n" not in str(caught.value)


def test_hostile_records(made: Project, other: Project) -> None:
    """None is taken, nothing is written outside, and each is named."""
    files = store_files(made.store.root)
    name = record_of(made, "words")
    good = files[name]
    value = json.loads(good)
    digest = "ab" * 32
    escape = {**value, "files": {"../../escape": {"sha256": digest, "size": 1}}}
    forged = Manifest(
        "words", "toy", "computed", value["identity"], parse_manifest(files[record_of(made, "side")], "").files
    )  # fmt: skip
    imported = Manifest("words", "toy", "imported", value["identity"], forged.files)
    twice = good.replace(b'{"content"', b'{"format":"x","content"', 1)
    bad = [
        json_bytes(escape), twice, b"[" * 100_000, b"{}", good[:-20], b"\xff" * 100,
        files[record_of(made, "side")], good.replace(b'"size":9', b'"size":1e999'),
        imported.to_bytes(), bytes(65 << 20),
    ]  # fmt: skip
    before = sorted(other.folder.parent.iterdir())
    for data in bad:
        with serving_store({**files, name: data}) as server:
            done, _ = pull(other, server.url)
            (damage,) = done.damage
            assert damage.path == name and damage.makers == ("words",), data[:60]
            assert damage.readers == ("total",) and len(str(damage)) < 1000
            assert done.here == ["source", "side"] and "total" in done.absent
    assert sorted(other.folder.parent.iterdir()) == before
    # A content that the recipe's root does not have is refused; the forger's word is not enough.
    recorded = {"words": parse_manifest(good, "").content}
    with serving_store({**files, name: forged.to_bytes()}) as server:
        done, _ = pull(other, server.url, recorded=recorded)
        assert "recorded beside the recipe" in str(done.damage[0])
        huge = forged.to_bytes()
        server.files[name] = huge
        assert pull(other, server.url)[0].damage == [], "without a root it is believed"


def test_sizes_beyond_the_disk_are_refused(made: Project, other: Project) -> None:
    files = store_files(made.store.root)
    name = record_of(made, "words")
    old = parse_manifest(files[name], "")
    entries = {path: type(entry)(entry.sha256, 1 << 60) for path, entry in old.files.items()}
    huge = Manifest("words", "toy", "computed", old.identity, entries)
    with (
        serving_store({**files, name: huge.to_bytes()}) as server,
        pytest.raises(KitError, match="are to come and"),
    ):
        pull(other, server.url)


def test_links_in_a_folder_are_not_followed(made: Project, other: Project, tmp_path: Path) -> None:
    there = tmp_path / "there"
    push(made, f"file://{there}")
    name = object_of(made, "words", "words.txt")
    (there / name).unlink()
    (there / name).symlink_to(made.store.root / name)
    with pytest.raises(VerificationError, match="not a plain file"):
        pull(other, f"file://{there}")
    (there / name).unlink()
    os.mkfifo(there / name)
    with pytest.raises(VerificationError, match="not a plain file"):
        pull(other, f"file://{there}")


def test_credentials_are_sent_and_never_shown(
    made: Project, other: Project, tmp_path: Path
) -> None:
    with serving_store(store_files(made.store.root), protected=True) as server:
        name = object_of(made, "source", "text.txt")
        server.faults[name] = [Fault("cut", at=10), Fault("wrong", body=b"1" * 7)]
        done, said = pull(other, server.url)
        assert done.here == list(made.graph) and "asking again" in said
        kept = [said, *(p.read_bytes().decode("latin-1") for p in files_below(other.folder))]
        assert not any(PASSWORD in text or USER + ":" in text for text in kept)
        wrong = server.url.replace(PASSWORD, "not-" + PASSWORD)
        shutil.rmtree(other.store.root)
        with pytest.raises(KitError, match="no access") as caught:
            pull(other, wrong)
        assert PASSWORD not in str(caught.value)
    for url in (f"http://u:{PASSWORD}@h:x/", f"s3://u:{PASSWORD}@b/", f"http://h/?t={PASSWORD}",
                f"http://u:{PASSWORD}@h/ x", f"ftp://u:{PASSWORD}@h/", f"file://h/{PASSWORD}",
                f"http://u:{PASSWORD}@[h/"):  # fmt: skip
        with pytest.raises(BadUse) as caught:
            open_remote(url)
        assert PASSWORD not in str(caught.value)


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_another_result_of_the_same_identity_stops_a_push(
    made: Project, other: Project, tmp_path: Path
) -> None:
    url = f"file://{tmp_path}/there"
    push(made, url)
    other.run("source")
    other.run("words", lambda job: (job.output / "words.txt").write_text("not so") and None)
    other.run("side")
    other.run("total")
    before = store_files(tmp_path / "there")
    with pytest.raises(VerificationError, match="of the same identity; nothing was sent"):
        push(other, url)
    assert store_files(tmp_path / "there") == before


def test_push_refuses_what_is_not_whole(made: Project, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/there"
    path = made.store.root / object_of(made, "words", "words.txt")
    good = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(b"rotten   ")
    with pytest.raises(VerificationError, match="of words; read by total; nothing was sent"):
        push(made, url)
    assert not (tmp_path / "there" / "actions").exists()
    path.write_bytes(good)
    (made.results / "side" / "manifest.json").unlink()
    with pytest.raises(Incomplete, match="no result of side"):
        push(made, url)


@pytest.mark.parametrize("read_back", [False, True])
def test_what_the_server_spoils_is_sent_again(made: Project, read_back: bool) -> None:
    name = object_of(made, "words", "words.txt")
    with serving_store({}, takes_put=True) as server:
        size = (made.store.root / name).stat().st_size
        spoiled = bytes(size) if read_back else b""
        server.faults[f"PUT {name}"] = [Fault("spoil", body=spoiled), Fault("status", 503)]
        push(made, server.url, read_back=read_back)
        assert server.files == store_files(made.store.root)
        del server.files[record_of(made, "words")]
        server.faults[f"PUT {name}"] = [Fault("spoil", body=b"?", times=9)]
        server.files[name] = b"?"
        with pytest.raises(KitError, match="words is not recorded there"):
            push(made, server.url, read_back=read_back)
        assert record_of(made, "words") not in server.files


def test_a_killed_pull_goes_on(
    made: Project, other: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while an object arrives: no part of it is visible, and the rest is asked for."""
    name = object_of(made, "source", "text.txt")
    with serving_store(store_files(made.store.root)) as server:

        def die(file: io.FileIO, data: bytes) -> None:
            os.write(file.fileno(), data[: LARGE // 2])
            if len(data) > 1000:
                os.kill(os.getpid(), 9)

        def killed() -> None:
            monkeypatch.setattr(fetch, "write_all", die)
            pull(other, server.url)

        assert in_child(killed) == -9
        assert not (other.store.root / name).exists()
        assert not list((other.store.root / "actions").glob("*"))
        (part,) = (other.store.root / "tmp").glob(f"part-{name[10:]}")
        held = part.stat().st_size
        assert held > 0
        done, _ = pull(other, server.url)
        assert done.here == list(made.graph)
        assert [e.range for e in server.log if e.path == f"GET {name}"][-1] == f"bytes={held}-"
        assert_whole(other, made)


@pytest.mark.parametrize("what", ["push", "pull"])
def test_killed_at_any_change_of_the_file_system(
    what: str, made: Project, other: Project, tmp_path: Path
) -> None:
    """Nothing half there is visible, no record lacks bytes, and the next call ends the work."""
    url = f"file://{tmp_path}/there"
    if what == "pull":
        push(made, url)
    target = Store(tmp_path / "there") if what == "push" else other.store
    deaths = 0
    for call in range(1, 400, 7):

        def killed(call: int = call) -> None:
            die_at(call)
            push(made, url) if what == "push" else pull(other, url)

        status = in_child(killed)
        assert status in (0, -9)
        for path in (target.root / "sha256").glob("*/*"):
            assert sha256_bytes(path.read_bytes()) == path.name
        for path in (target.root / "actions").glob("[!.]*"):
            manifest = parse_manifest(path.read_bytes(), str(path))
            assert target.examine_all(manifest.files.values()) == {}
        if status == 0:
            break
        deaths += 1
        # Most calls start from nothing; every third goes on from what the last one left.
        if deaths % 3:
            shutil.rmtree(target.root, ignore_errors=True)
    assert status == 0 and deaths > 5
    assert store_files(target.root) == store_files(made.store.root)


def test_a_part_that_rotted_costs_one_more_download(made: Project, other: Project) -> None:
    name = object_of(made, "source", "text.txt")
    (other.store.root / "tmp").mkdir(parents=True)
    (other.store.root / "tmp" / f"part-{name[10:]}").write_bytes(b"not the beginning")
    with serving_store(store_files(made.store.root)) as server:
        done, said = pull(other, server.url)
    assert done.here == list(made.graph) and "asking again" in said


WORKER = """
import io, sys
from pathlib import Path
sys.path.insert(0, sys.argv[4])
from artifacts.test_store_remote import pull, push
from artifacts.toy import Cut, Project, make_graph
what, folder, url = sys.argv[1:4]
for turn in range(6):
    project = Project(Path(folder), make_graph(text="a" * 100_000, cut=Cut(length=3 + turn % 3)))
    if what == "push":
        project.run_all()
        push(project, url)
    else:
        pull(project, url)
"""


@pytest.mark.parametrize("what", ["push", "pull"])
def test_machines_share_a_store_at_once(what: str, tmp_path: Path) -> None:
    """Two push to one folder, or pull into one, while a third removes what nothing reaches."""
    there, base = tmp_path / "there", Project(tmp_path / "base")
    url = f"file://{there}"
    if what == "pull":
        for length in (3, 4, 5):
            base.graph = make_graph(text="a" * 100_000, cut=Cut(length=length))
            base.run_all()
            push(base, url)
    shared = there if what == "push" else tmp_path / "one" / "store"
    folders = [tmp_path / "one", tmp_path / ("two" if what == "push" else "one")]
    for folder in folders:
        Project(folder)
    command = [sys.executable, "-c", WORKER, what]
    tests = str(Path(__file__).parents[1])
    jobs = [
        subprocess.Popen(
            [*command, str(folder), url, tests], stderr=(tmp_path / f"log{number}").open("wb")
        )
        for number, folder in enumerate(folders)
    ]
    store = Store(shared)
    removed = 0
    while any(job.poll() is None for job in jobs):
        removed += len(collect(store, lambda: Reached(store), 0.0))
        for path in (store.root / "actions").glob("[!.]*"):
            with store.in_use():
                if path.exists():
                    manifest = parse_manifest(path.read_bytes(), str(path))
                    assert store.examine_all(manifest.files.values()) == {}
    for job in jobs:
        assert job.wait() == 0, "\n".join(log.read_text() for log in tmp_path.glob("log*"))
    assert removed > 0
    assert verify(store)[0] == []


def test_urls() -> None:
    assert open_remote("file:///a%20b/c").shown == "/a b/c"
    assert open_remote("https://me:pw@host:81/x/").shown == "https://host:81/x"
    for url in ("", "store", "file://host/x", "http://", "s3://", "https:///x", "gs://b/x"):
        with pytest.raises(BadUse):
            open_remote(url)


def test_the_object_names_are_hashes(made: Project) -> None:
    for name, data in store_files(made.store.root).items():
        if not name.startswith("actions/"):
            assert sha256_bytes(data) == name.rpartition("/")[2]
