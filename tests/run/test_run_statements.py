"""A whole run is signed, verified, audited and proved in part; no secret is in what it publishes."""

import json
from pathlib import Path

import pytest
from run_helpers import PLANTED, Run

from instella.artifacts.journal import FOLDER as JOURNAL
from instella.artifacts.journal import host_facts
from instella.artifacts.places import BENCHMARKS, LOGS
from instella.prove.processes import Finished, instella
from instella.statements.search import stated

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

TOKENS = (
    *(PLANTED[name] for name in PLANTED if name not in ("DATA_URL", "USER")),
    "planted-password",
    "planted-url-token",
)


def statement(run: Run, *words: object, code: int = 0) -> Finished:
    """``instella statement`` with the planted environment; its exit status is given."""
    done = instella(run.folder, "statement", *map(str, words), extra=PLANTED)
    assert done.code == code, done.out + done.err
    return done


def test_a_run_is_signed_verified_and_audited(nano_copy: Run, tmp_path: Path) -> None:
    run, key = nano_copy, tmp_path / "key"
    inside = statement(run, "key", "store/key", code=2)
    assert "a private key must not lie in store" in inside.err
    statement(run, "key", key)
    unsigned = instella(run.folder, "audit", "--key", f"{key}.pub")
    assert unsigned.code == 1
    assert "statement: statements: expected signed statements, found nothing" in unsigned.out
    said = statement(run, "sign", "--key", key).out
    before = {path: path.read_bytes() for path in run.results.rglob("statements/**/*.*")}
    assert said.startswith(f"signed: {len(before)} statements in ")
    statement(run, "sign", "--key", key)
    assert {path: path.read_bytes() for path in before} == before
    verified = statement(run, "verify", "--key", f"{key}.pub").out
    assert verified == f"verified: {len(before)} statements, root {run.root()}\n"

    noted = instella(run.folder, "audit")
    assert noted.code == 0 and "signed statements were not verified: give --key" in noted.out
    assert instella(run.folder, "audit", "--key", f"{key}.pub").code == 0

    place = run.results / "statements" / "provenance" / "sft.intoto.jsonl"
    place.write_bytes(place.read_bytes().replace(b"A", b"B", 1))
    refused = statement(run, "verify", "--key", f"{key}.pub", code=4)
    assert refused.err.count("\n") == 1
    assert refused.err.startswith("provenance/sft.intoto.jsonl: refused: ")
    audited = instella(run.folder, "audit", "--key", f"{key}.pub")
    assert audited.code == 1
    assert "(run): statement: statements/provenance/sft.intoto.jsonl: expected" in audited.out
    (run.results / "sft" / "manifest.json").unlink()
    assert statement(run, "verify", "--key", f"{key}.pub", code=3).err.count("\n") == 1


def test_one_score_and_one_file_are_proved_elsewhere(nano_copy: Run, tmp_path: Path) -> None:
    """The proof is checked in a folder that has nothing of the run."""
    run, key = nano_copy, tmp_path / "key"
    public = tmp_path / "key.pub"
    statement(run, "key", key)
    statement(run, "sign", "--key", key)
    about = ("prove", "--key", public, "evaluate_grpo3")
    statement(run, *about, "scores.json", "--score", "sums/pass", "--out", "a", code=2)
    scores = json.loads((run.results / "evaluate_grpo3" / "scores.json").read_bytes())
    metric = sorted(scores["sums"])[0]
    proof = tmp_path / "score.json"
    statement(run, *about, "scores.json", "--score", f"sums/{metric}", "--out", proof)
    statement(run, *about, "sums.jsonl", "--line", 2, "--out", tmp_path / "line.json")
    statement(run, *about, "sums.jsonl", "--out", tmp_path / "file.json")
    records = tmp_path / "sums.jsonl"
    records.write_bytes((run.results / "evaluate_grpo3" / "sums.jsonl").read_bytes())
    root = run.root()
    for path in (run.results, run.store):
        path.rename(tmp_path / f"away {path.name}")

    line, told = statement(run, "check", "--key", public, proof).out.splitlines()
    assert json.loads(line) == {"set": "sums", "metric": metric, **scores["sums"][metric]}
    assert told.endswith(f"in the run of recipe nano with root {root}")
    line = statement(run, "check", "--key", public, tmp_path / "line.json").out.splitlines()[0]
    assert line == records.read_text(encoding="utf-8").splitlines()[1]
    statement(run, "check", "--key", public, tmp_path / "file.json", records)
    records.write_bytes(records.read_bytes() + b" ")
    assert "sums.jsonl: not evaluate_grpo3/sums.jsonl" in statement(
        run, "check", "--key", public, tmp_path / "file.json", records, code=4
    ).err  # fmt: skip


def test_no_secret_is_in_what_a_run_publishes(nano_copy: Run, tmp_path: Path) -> None:
    """Tokens and the user's name stand in no file at all; paths and the machine's name in nothing
    but the journal, logs and the store's notes of its own."""
    run, key = nano_copy, tmp_path / "key"
    report = tmp_path / "audit.json"
    assert instella(run.folder, "audit", "--json", str(report), extra=PLANTED).code == 0
    statement(run, "key", key)
    statement(run, "sign", "--key", key)
    exports = tmp_path / "exports"
    for kind in ("ro-crate", "sbom", "ml-bom", "model-card"):
        words = ("export", kind, "--output", str(exports / kind))
        assert instella(run.folder, *words, extra=PLANTED).code == 0
    places = (run.results, run.store, exports)
    files = [path for place in places for path in place.rglob("*")]
    assert run.results / "report.html" in files
    private = {run.results / name for name in (JOURNAL, LOGS, BENCHMARKS)}
    private |= {run.store / name for name in ("results", "cache", "verified", "locks")}
    folder = "erster Läuf 第一".encode()
    host = str(host_facts()["host"])
    for path in filter(Path.is_file, [*files, report]):
        data = path.read_bytes()
        assert not [token for token in TOKENS if token.encode() in data], path
        if private.isdisjoint(path.parents):
            assert folder not in data and b"/copy of nano" not in data, path
            assert len(host) < 8 or host.encode() not in data, path
    statements = stated(run.results / "statements")
    assert len(statements) > len(run.manifests())
    # home and machine may be common words; the scan below looks for them, where they are none
    traces = (*TOKENS, PLANTED["USER"], str(run.folder), "/copy of nano")
    for name, data in statements.items():
        # with the payload, which stands in base64 in the file
        assert b'"_type"' in data, name
        assert not [word for word in traces if word.encode() in data], name
    assert statement(run, "scan", report, exports).out.startswith("clean: 0 places; looked for ")

    (run.results / "table.md").write_text(f"as {PLANTED['HF_TOKEN']} says")
    found = statement(run, "scan", code=1).out.splitlines()
    assert found[0] == "table.md: holds the value of HF_TOKEN"
    refused = statement(run, "sign", "--key", key, code=4).err
    assert "nothing is signed: 1 places hold what must not be published" in refused
    assert PLANTED["HF_TOKEN"] not in refused and refused.count("\n") == 1
