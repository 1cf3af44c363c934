"""Verifies the statements of a run with public tools alone; runs in the environment that has them.

    python public_verifiers.py PUBLIC_KEY RESULTS

Envelopes with securesystemslib, statements and predicates with in-toto-attestation, checkpoints with
model-signing. Prints what was verified, one file a line; the first that is refused ends it.
"""

import hashlib
import json
import sys
from pathlib import Path

from cryptography.hazmat.primitives.serialization import load_pem_public_key
from google.protobuf import json_format
from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
from in_toto_attestation.predicates.test_result.v0 import test_result_pb2
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement
from model_signing import verifying
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey

PREDICATES = {
    "https://slsa.dev/provenance/v1": provenance_pb2.Provenance,
    "https://in-toto.io/attestation/test-result/v0.1": test_result_pb2.TestResult,
}


def verify_statement(path: Path, key: SSlibKey, results: Path) -> str:
    """Signature, form, predicate and the digest of every subject that is a file."""
    envelope = Envelope.from_dict(json.loads(path.read_bytes()))
    envelope.verify([key], 1)
    statement = Statement.copy_from_pb(
        json_format.Parse(envelope.payload, statement_pb2.Statement())
    )
    statement.validate()
    value = json.loads(envelope.payload)
    kind = value["predicateType"]
    if kind in PREDICATES:
        json_format.ParseDict(value["predicate"], PREDICATES[kind]())
        for subject in value["subject"]:
            found = hashlib.sha256((results / subject["name"]).read_bytes()).hexdigest()
            if found != subject["digest"]["sha256"]:
                raise ValueError(f"{subject['name']} has another digest")
    return kind


def main(public: Path, results: Path) -> None:
    """Verify all."""
    pem = public.read_bytes()
    for path in sorted((results / "statements").rglob("*")):
        name = path.relative_to(results / "statements").as_posix()
        if path.suffix == ".jsonl":
            keyid = json.loads(path.read_bytes())["signatures"][0]["keyid"]
            key = SSlibKey.from_crypto(load_pem_public_key(pem), keyid=keyid)
            print(name, verify_statement(path, key, results))
        elif path.suffix == ".sig":
            config = verifying.Config().use_elliptic_key_verifier(public_key=public)
            config.verify(results / path.stem, path)
            print(name, "model")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
