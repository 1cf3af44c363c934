"""The teacher behind HTTP: faults, records, replays and resumption, against a real server."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from synthesis_helpers import (
    PROBLEMS,
    ROOT,
    STAGES,
    bytes_of,
    job_of,
    report_of,
    rows_of,
    run_all,
    write_source,
)
from teacher_server import FAULTS, TeacherServer

from instella.canonical import read_jsonl
from instella.errors import BadUse, KitError, VerificationError
from instella.recipe.settings import Teacher
from instella.stages import synthetic_abstract, synthetic_program
from instella.synthesis import endpoint
from instella.synthesis.client import MAX_TRIES, Client
from instella.synthesis.endpoint import CONNECTIONS, KEY, URL, Endpoint, request_seed
from instella.synthesis.transcript import FILE, Transcript

ENDPOINT = Teacher(kind="endpoint", model="a-model")
SOURCE = read_jsonl(PROBLEMS)[:6]
FOREIGN = [{"key": "a", "question": "What is six times seven, in all of history?", "answer": "42"}]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real client with short pauses."""
    monkeypatch.setattr(endpoint, "Client", partial(Client, timeout=0.5, first_pause=0.001))
    monkeypatch.setenv(CONNECTIONS, "4")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    write_source(tmp_path, SOURCE, FOREIGN)
    yield tmp_path


def run_with(server: TeacherServer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URL, server.url)
    run_all(folder, ENDPOINT)


def test_a_run_is_recorded_and_its_replay_has_the_same_bytes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TeacherServer(nonce=True) as server:
        run_with(server, folder, monkeypatch)
    for stage in STAGES:
        report = report_of(folder, stage)
        transcript = read_jsonl(folder / stage / FILE)
        assert report["teacher"] == {"kind": "endpoint", "model": "a-model"}
        assert report["recorded_replies"] == len(transcript) >= report["accepted"]
    assert sum(server.asked.values()) == sum(
        report_of(folder, stage)["recorded_replies"] for stage in STAGES
    )
    assert server.most_busy <= 4
    again = folder / "again"
    write_source(again, SOURCE, FOREIGN)
    monkeypatch.setenv(URL, f"file:{folder}")
    run_all(again, ENDPOINT)
    assert bytes_of(again) == bytes_of(folder)


def test_the_endpoint_s_rows_pass_the_same_checks(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TeacherServer() as server:
        run_with(server, folder, monkeypatch)
    rows = rows_of(folder, "synthetic_solution")
    assert rows and all(row["solution"].endswith(f"{row['answer']}.") for row in rows)
    # A rejected solution is asked for again, with another seed.
    lost = sum(report_of(folder, "synthetic_solution")["rows_lost"].values())
    report = report_of(folder, "synthetic_solution")
    assert report["attempts"] == len(rows) + 2 * lost


def test_the_order_of_arrival_does_not_matter(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = []
    for connections in ("1", "8"):
        monkeypatch.setenv(CONNECTIONS, connections)
        place = folder / connections
        write_source(place, SOURCE, FOREIGN)
        with TeacherServer(delay=0.002) as server:
            run_with(server, place, monkeypatch)
        results.append(bytes_of(place))
    assert results[0] == results[1]


@pytest.mark.parametrize("fault", [name for name in FAULTS if name != "half a pair"])
def test_a_fault_is_asked_again(folder: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    monkeypatch.setenv(URL, "unused")
    results = []
    for name, faults in (("good", ()), ("bad", (fault, fault))):
        place = folder / name
        write_source(place, SOURCE[:2], FOREIGN)
        with TeacherServer(faults) as server:
            monkeypatch.setenv(URL, server.url)
            synthetic_abstract.run(job_of("synthetic_abstract", place, ENDPOINT))
        assert set(server.asked.values()) == {len(faults) + 1}
        results.append((place / "synthetic_abstract" / FILE).read_bytes())
    assert results[0] == results[1]


def test_half_a_surrogate_pair_becomes_a_plain_reply(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no UTF-8, so it is kept as '?', rejected by the check, and asked again."""
    with TeacherServer(("half a pair",)) as server:
        monkeypatch.setenv(URL, server.url)
        with pytest.raises(VerificationError, match=r"none of 6 rows .*no JSON"):
            synthetic_abstract.run(job_of("synthetic_abstract", folder, ENDPOINT))
    kept = read_jsonl(folder / "synthetic_abstract.scratch" / FILE)
    assert {entry["reply"] for entry in kept} == {"half ?"}


def test_a_server_that_stays_down_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TeacherServer(("500",) * MAX_TRIES) as server:
        monkeypatch.setenv(URL, server.url)
        with pytest.raises(KitError, match=r"status 500 after 8 tries; run the stage") as caught:
            synthetic_abstract.run(job_of("synthetic_abstract", folder, ENDPOINT))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("fault", ["401", "302"])
def test_a_refusal_is_not_asked_again_and_the_key_is_not_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setenv(KEY, "secret-key")
    monkeypatch.setenv(CONNECTIONS, "1")
    with TeacherServer((fault,)) as server:
        monkeypatch.setenv(URL, server.url)
        with pytest.raises(BadUse, match=f"status {fault}") as caught:
            synthetic_abstract.run(job_of("synthetic_abstract", folder, ENDPOINT))
    assert sum(server.asked.values()) == 1
    assert server.headers["Authorization"] == "Bearer secret-key"
    assert "secret" not in str(caught.value) and "\n" not in str(caught.value)


def test_a_reply_cut_at_its_length_is_rejected_and_counted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TeacherServer() as server:
        monkeypatch.setenv(URL, server.url)
        synthetic_abstract.run(job_of("synthetic_abstract", folder, ENDPOINT))
        server.faults = ("long",)
        with pytest.raises(VerificationError, match="cut at max_tokens"):
            synthetic_program.run(job_of("synthetic_program", folder, ENDPOINT))


def test_a_killed_stage_goes_on_from_its_record(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = folder / "whole"
    write_source(whole, SOURCE, FOREIGN)
    with TeacherServer() as server:
        monkeypatch.setenv(URL, server.url)
        synthetic_abstract.run(job_of("synthetic_abstract", whole, ENDPOINT))
    with TeacherServer(delay=0.3) as server:
        kill_in_the_middle(server, folder)
        before = dict(server.asked)
        kept = (folder / "synthetic_abstract.scratch" / FILE).read_bytes()
        # As if the kill had cut the last line.
        torn = b'{"finish_reason":"st'
        (folder / "synthetic_abstract.scratch" / FILE).write_bytes(kept + torn)
        monkeypatch.setenv(URL, server.url)
        server.delay = 0
        (folder / "synthetic_abstract").rmdir()
        synthetic_abstract.run(job_of("synthetic_abstract", folder, ENDPOINT))
    done = kept.count(b"\n")
    assert 0 < done < len(SOURCE)
    asked_twice = sum(server.asked[name] - 1 for name in before)
    assert asked_twice == len(before) - done, "only what was under way is asked again"
    for name in ("rows.jsonl", "report.json", FILE):
        path = Path("synthetic_abstract", name)
        assert (folder / path).read_bytes() == (whole / path).read_bytes()


def kill_in_the_middle(server: TeacherServer, folder: Path) -> None:
    """Run the first stage in a process and kill it when half the replies are there."""
    script = (
        "from pathlib import Path\nfrom synthesis_helpers import job_of\n"
        "from instella.recipe.settings import Teacher\n"
        "from instella.stages import synthetic_abstract\n"
        "teacher = Teacher(kind='endpoint', model='a-model')\n"
        f"synthetic_abstract.run(job_of('synthetic_abstract', Path({str(folder)!r}), teacher))\n"
    )
    environment = {
        **os.environ, URL: server.url, CONNECTIONS: "2",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(Path(__file__).parent)]),
    }  # fmt: skip
    record = folder / "synthetic_abstract.scratch" / FILE
    with subprocess.Popen([sys.executable, "-c", script], env=environment) as process:
        while process.poll() is None:
            if record.is_file() and record.read_bytes().count(b"\n") >= len(SOURCE) // 2:
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(0.01)
    for path in (folder / "synthetic_abstract").iterdir():
        path.unlink()
    assert process.returncode == -signal.SIGKILL
    # What the server still works on was asked, and its reply went nowhere.
    time.sleep(0.5)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        (URL, "", "no teacher; set INSTELLA_TEACHER_URL"),
        (URL, "ftp://host", "not an address"),
        (URL, "http://", "not an address"),
        (URL, "http://host:port/v1", "not an address"),
        (URL, "http://host/v1\r\nX: y", "not an address"),
        (URL, "http://name:word@host/v1", "not an address"),
        (KEY, "secret\n", "its key holds"),
        (KEY, "geheimnisvolle\u00dfe", "its key holds"),
        (CONNECTIONS, "0", "from 1 to 4096"),
        (CONNECTIONS, "many", "from 1 to 4096"),
    ],
)
def test_a_wrong_placement_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: str
) -> None:
    monkeypatch.setenv(URL, "http://127.0.0.1:9/v1")
    monkeypatch.setenv(name, value)
    with pytest.raises(BadUse, match=words) as caught:
        Endpoint(job_of("synthetic_abstract", folder, ENDPOINT))
    assert "secret" not in str(caught.value)


def test_a_replay_with_other_settings_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TeacherServer() as server:
        monkeypatch.setenv(URL, server.url)
        synthetic_abstract.run(job_of("synthetic_abstract", folder, ENDPOINT))
    again = folder / "again"
    write_source(again, SOURCE, FOREIGN)
    monkeypatch.setenv(URL, f"file:{folder}")
    other = Teacher(kind="endpoint", model="another-model")
    with pytest.raises(BadUse, match="belongs to other settings or data"):
        synthetic_abstract.run(job_of("synthetic_abstract", again, other))
    with pytest.raises(VerificationError, match="no such transcript"):
        synthetic_program.run(job_of("synthetic_program", folder, ENDPOINT))


@pytest.mark.parametrize(
    "bad",
    [
        b'{"reply":1}\n',
        b'{"finish_reason":"stop","reply":"\\ud800","request":"r"}\n',
        b'{"finish_reason":"stop","reply":"a","reply":"b","request":"r"}\n',
        b'{"finish_reason":"stop","reply":["a"],"request":"r"}\n',
        b'{"finish_reason":"stop","reply":"a","request":"r"}\r\n',
        b'"' + b"[" * 100_000 + b"\n",
        b"[" * 100_000 + b"\n",
        b"\0" * 50 + b"\n",
        b"\xff\n",
        b"\n",
    ],
    ids=lambda line: repr(line[:50]),
)
@pytest.mark.parametrize("writable", [True, False])
def test_a_damaged_record_names_its_line(tmp_path: Path, bad: bytes, writable: bool) -> None:
    path = tmp_path / FILE
    good = b'{"finish_reason":"stop","reply":"a","request":"r"}\n'
    path.write_bytes(good + bad + good)
    with pytest.raises(VerificationError, match="line 2: not a reply") as caught:
        Transcript(path, writable)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == good + bad + good


def test_seeds_differ_by_what_is_asked() -> None:
    seeds = {request_seed(0, f"solve row {n} {a}") for n in range(50) for a in range(5)}
    assert len(seeds) == 250 and all(0 <= seed < 2**31 for seed in seeds)
    assert request_seed(0, "solve row 1 0") != request_seed(1, "solve row 1 0")
