"""Statements: what they say, and that no changed one is taken."""

import base64
import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)

from instella.artifacts.check import root
from instella.canonical import json_bytes, sha256_file
from instella.errors import BadUse
from instella.prove.copies import PROJECT
from instella.statements import folder, keys, predicates
from instella.statements.envelope import bundle, envelope, pae
from instella.statements.folder import MODEL_SUFFIX, RUN_FILE, Finished
from instella.statements.keys import Signer, local_signer, make_key
from instella.statements.predicates import IMPORT_BUILD, STAGE_BUILD

from .conftest import make_run, toy_graph

MUTATIONS = 200


def payload_of(path: Path) -> dict[str, Any]:
    value = json.loads(path.read_bytes())
    return dict(json.loads(base64.b64decode(value.get("dsseEnvelope", value)["payload"])))


def test_what_is_stated(toy: Finished) -> None:
    assert folder.present(toy.folder) == [
        "models/sft.sig",
        *(f"provenance/{name}.intoto.jsonl" for name in sorted(toy.graph)),
        RUN_FILE,
        "scores/evaluate_sft.intoto.jsonl",
        "scores/results.intoto.jsonl",
    ]
    run = payload_of(toy.folder / RUN_FILE)
    assert run["subject"] == [{"name": "toy", "digest": {"sha256": root(toy.results, toy.graph)}}]
    assert run["predicate"]["stages"] == toy.contents
    made = payload_of(toy.folder / "provenance" / "sft.intoto.jsonl")
    for subject in made["subject"]:
        assert sha256_file(toy.results / subject["name"]) == subject["digest"]["sha256"]
    definition = made["predicate"]["buildDefinition"]
    assert definition["externalParameters"]["settings"] == {"rate": 1e-05, "steps": 3}
    assert definition["internalParameters"]["numerics"]["class"] == "portable-x86"
    found = {item["name"]: item["digest"]["sha256"] for item in definition["resolvedDependencies"]}
    identity = toy.manifests["sft"].identity
    assert found == {
        "input/tokens": toy.manifests["source_words"].content,
        "input/tokenizer": toy.manifests["tokenizer"].content,
        "code": identity["code"],
        "lock": identity["lock"],
    }


def test_names_are_uris_that_the_page_explains(toy: Finished) -> None:
    page = (PROJECT / "docs" / "statements.md").read_text(encoding="utf-8")
    form = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9._~!$&'()*+,;=:@/%-]+")  # RFC 3986
    for name in (predicates.RUN, STAGE_BUILD, IMPORT_BUILD, predicates.BUILDER):
        assert form.fullmatch(name) and f"| `{name}` |" in page, name
    made = payload_of(toy.folder / "provenance" / "sft.intoto.jsonl")["predicate"]
    assert made["buildDefinition"]["buildType"] == STAGE_BUILD
    assert made["runDetails"]["builder"]["id"] == predicates.BUILDER


def test_test_results(toy: Finished) -> None:
    scored = payload_of(toy.folder / "scores" / "evaluate_sft.intoto.jsonl")
    names = {subject["name"] for subject in scored["subject"]}
    assert {"evaluate_sft/scores.json", "sft/model.safetensors"} <= names
    assert scored["predicate"]["result"] == "PASSED"
    assert scored["predicate"]["passedTests"] == ["sums", "words"]
    judged = payload_of(toy.folder / "scores" / "results.intoto.jsonl")["predicate"]
    assert (judged["result"], judged["passedTests"], judged["failedTests"]) == (
        "FAILED",
        ["it learns"],
        ["it talks"],
    )


def test_the_same_run_and_key_give_the_same_bytes(toy: Finished, signer: Signer) -> None:
    """And another place, user or time changes nothing, since nothing of them is in a payload."""
    files = folder.signed(folder.payloads(toy), signer)
    assert files == {name: (toy.folder / name).read_bytes() for name in folder.present(toy.folder)}


def test_good_statements_are_taken(copy: Finished, signer: Signer) -> None:
    assert folder.refusals(copy, signer.public) == []


@pytest.fixture(scope="session")
def other(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    path = tmp_path_factory.mktemp("other") / "key"
    make_key(path)
    return local_signer(path.read_bytes(), "other")


@pytest.fixture(scope="session")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Payloads of a run of another source."""
    return folder.payloads(make_run(tmp_path_factory.mktemp("b"), toy_graph("another source")))


class Mutator:
    """Changes a signed statement in one of many ways, by chance."""

    def __init__(
        self, run: Finished, signer: Signer, other: Signer, elsewhere: dict[str, bytes], seed: int
    ) -> None:
        self.signer, self.other, self.elsewhere = signer, other, elsewhere
        self.payloads = folder.payloads(run)
        self.chance = random.Random(seed)
        self.name = ""

    def sealed(self, payload: bytes, signer: Signer | None = None) -> dict[str, Any]:
        signer = signer or self.signer
        (signature,) = signer.sign([pae(payload)])
        if self.name.endswith(MODEL_SUFFIX):
            return bundle(payload, signature, signer.public)
        return envelope(payload, signature, signer.public.keyid)

    def changed(self, change: Callable[[dict[str, Any]], Any], again: bool) -> bytes:
        """The payload changed in place, signed again by the right key or with the old signature."""
        value = json.loads(self.payloads[self.name])
        change(value)
        if again:
            return json_bytes(self.sealed(json_bytes(value)))
        whole = self.sealed(self.payloads[self.name])
        inner = whole.get("dsseEnvelope", whole)
        inner["payload"] = base64.b64encode(json_bytes(value)).decode()
        return json_bytes(whole)

    def enveloped(self, change: Callable[[dict[str, Any]], Any]) -> bytes:
        whole = self.sealed(self.payloads[self.name])
        change(whole.get("dsseEnvelope", whole))
        return json_bytes(whole)

    def flip(self, data: bytes) -> bytes:
        place = self.chance.randrange(len(data))
        return (
            data[:place] + bytes([data[place] ^ 1 << self.chance.randrange(8)]) + data[place + 1 :]
        )

    def cut(self, data: bytes) -> bytes:
        return data[: self.chance.randrange(len(data))]

    def appended(self, data: bytes) -> bytes:
        return data + self.chance.choice([b"\n", b" ", b"{}", data])

    def flip_in_payload(self, data: bytes) -> bytes:
        return self.enveloped(
            lambda inner: inner.update(
                payload=base64.b64encode(self.flip(base64.b64decode(inner["payload"]))).decode()
            )
        )

    def flip_in_signature(self, data: bytes) -> bytes:
        def change(inner: dict[str, Any]) -> None:
            (one,) = inner["signatures"]
            one["sig"] = base64.b64encode(self.flip(base64.b64decode(one["sig"]))).decode()

        return self.enveloped(change)

    def other_half(self, data: bytes) -> bytes:
        def change(inner: dict[str, Any]) -> None:
            r, s = decode_dss_signature(base64.b64decode(inner["signatures"][0]["sig"]))
            high = encode_dss_signature(r, keys._ORDER - s)
            inner["signatures"][0]["sig"] = base64.b64encode(high).decode()

        return self.enveloped(change)

    def payload_type(self, data: bytes) -> bytes:
        names = ["application/json", "text/plain", "application/vnd.in-toto+JSON", ""]
        return self.enveloped(lambda inner: inner.update(payloadType=self.chance.choice(names)))

    def no_signature(self, data: bytes) -> bytes:
        return self.enveloped(lambda inner: inner.update(signatures=[]))

    def two_signatures(self, data: bytes) -> bytes:
        return self.enveloped(lambda inner: inner["signatures"].append(inner["signatures"][0]))

    def keyid(self, data: bytes) -> bytes:
        return self.enveloped(lambda inner: inner["signatures"][0].update(keyid="a" * 64))

    def duplicated_key(self, data: bytes) -> bytes:
        return data.replace(b'{"', b'{"payload":"","', 1).replace(b'{"', b'{"payload":"","', 1)

    def spaced(self, data: bytes) -> bytes:
        return json.dumps(json.loads(data), indent=1).encode()

    def of_another_key(self, data: bytes) -> bytes:
        return json_bytes(self.sealed(self.payloads[self.name], self.other))

    def of_another_run(self, data: bytes) -> bytes:
        if self.elsewhere[self.name] == self.payloads[self.name]:
            return self.of_another_key(data)
        return json_bytes(self.sealed(self.elsewhere[self.name]))

    def of_another_stage(self, data: bytes) -> bytes:
        names = sorted(set(self.payloads) - {self.name})
        return json_bytes(self.sealed(self.payloads[self.chance.choice(names)]))

    def unknown_predicate(self, data: bytes) -> bytes:
        return self.changed(lambda value: value.update(predicateType="https://a.example/b"), True)

    def other_statement_type(self, data: bytes) -> bytes:
        kind = "https://in-toto.io/Statement/v0.1"
        return self.changed(lambda value: value.update(_type=kind), True)

    def other_digest(self, data: bytes) -> bytes:
        def change(value: dict[str, Any]) -> None:
            self.chance.choice(value["subject"])["digest"]["sha256"] = "0" * 64

        return self.changed(change, self.chance.random() < 0.5)

    def fewer_subjects(self, data: bytes) -> bytes:
        return self.changed(lambda value: value["subject"].pop(), self.chance.random() < 0.5)

    def emptied(self, data: bytes) -> bytes:
        return self.chance.choice([b"", b"\n", b"null\n", b"[]\n", b'{"a":NaN}\n', b"[" * 100_000])


HELPERS = ("sealed", "changed", "enveloped")
WAYS = [name for name in vars(Mutator) if not name.startswith("__") and name not in HELPERS]


def test_each_of_200_mutated_statements_is_refused_with_one_line(
    copy: Finished, signer: Signer, other: Signer, elsewhere: dict[str, bytes]
) -> None:
    mutator = Mutator(copy, signer, other, elsewhere, 20251130)
    names, tried, number = sorted(mutator.payloads), set(), 0
    while len(tried) < MUTATIONS:
        way = WAYS[number % len(WAYS)]
        mutator.name = name = names[number // len(WAYS) % len(names)]
        path = copy.folder / name
        before = path.read_bytes()
        data = getattr(mutator, way)(before)
        assert data != before
        path.write_bytes(data)
        text = folder.refusal(path, mutator.payloads[name], signer.public)
        assert text is not None, f"{way} of {name} is taken"
        assert text.isprintable() and 0 < len(text) < 400, f"{way}: {text!r}"
        path.write_bytes(before)
        tried.add((name, data))
        number += 1
    assert folder.refusals(copy, signer.public) == []


def test_missing_foreign_and_linked_files(copy: Finished, signer: Signer) -> None:
    (copy.folder / "models" / "sft.sig").unlink()
    (copy.folder / "provenance" / "foreign.intoto.jsonl").write_text("{}\n")
    place = copy.folder / "provenance" / "sft.intoto.jsonl"
    place.rename(copy.results / "away")
    place.symlink_to(copy.results / "away")
    assert folder.refusals(copy, signer.public) == [
        ("models/sft.sig", "missing; instella statement sign makes it"),
        ("provenance/foreign.intoto.jsonl", "states nothing of this run; remove it"),
        ("provenance/sft.intoto.jsonl", "not a plain file"),
    ]


def test_an_old_statement_is_refused_for_new_bytes(
    toy: Finished, signer: Signer, tmp_path: Path
) -> None:
    """The run changed after it was signed: what depends on the change is refused and named."""
    run = make_run(tmp_path, toy_graph("another source"))
    folder.write(
        run, {name: (toy.folder / name).read_bytes() for name in folder.present(toy.folder)}
    )
    refused = dict(folder.refusals(run, signer.public))
    assert RUN_FILE in refused and "provenance/source_words.intoto.jsonl" in refused
    text = refused["provenance/source_words.intoto.jsonl"]
    assert text.startswith("well signed, but of another run: predicate.buildDefinition.externalP")
    assert "models/sft.sig" not in refused  # its bytes do not depend on that change


def test_nothing_is_written_through_a_link(copy: Finished, signer: Signer, tmp_path: Path) -> None:
    files = folder.signed(folder.payloads(copy), signer)
    shutil.rmtree(copy.folder / "models")
    (tmp_path / "outside").mkdir()
    (copy.folder / "models").symlink_to(tmp_path / "outside")
    with pytest.raises(BadUse, match="models: not a folder of the run's own"):
        folder.write(copy, files)
    assert list((tmp_path / "outside").iterdir()) == []
