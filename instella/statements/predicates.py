"""What is stated: in-toto payloads as they follow from the manifests of a run, byte for byte.

Each is canonical JSON without times, hosts or paths of a machine, so whoever has the run can
compute it again and compare. URIs of the scheme ``instella-kit`` are names, not addresses.
"""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from instella.artifacts.identity import identity_key
from instella.artifacts.manifest import NAME, Manifest
from instella.canonical import json_bytes, sha256_bytes
from instella.statements.envelope import STATEMENT_TYPE

PROVENANCE = "https://slsa.dev/provenance/v1"
TEST_RESULT = "https://in-toto.io/attestation/test-result/v0.1"
MODEL_SIGNATURE = "https://model_signing/signature/v1.0"
RUN = "instella-kit:run/1"
STAGE_BUILD, IMPORT_BUILD = "instella-kit:stage/1", "instella-kit:import/1"
BUILDER = "instella-kit:local"
SCORES, RESULTS = "scores.json", "results.json"

Value = dict[str, Any]


def provenance(manifest: Manifest) -> bytes:
    """SLSA provenance v1 of one stage: what made these files, from what."""
    identity = manifest.identity
    computed = manifest.origin == "computed"
    definition: Value = {
        "buildType": STAGE_BUILD if computed else IMPORT_BUILD,
        "externalParameters": {
            "stage": manifest.stage,
            "kind": manifest.kind,
            "settings": identity.get("settings"),
        },
        "internalParameters": {
            "identity": identity_key(identity),
            "content": manifest.content,
            "numerics": identity.get("numerics"),
        },
        "resolvedDependencies": _dependencies(identity),
    }
    predicate = {"buildDefinition": definition, "runDetails": {"builder": {"id": BUILDER}}}
    return _statement(subjects(manifest), PROVENANCE, predicate)


def _dependencies(identity: Mapping[str, Any]) -> list[Value]:
    """Inputs by role, with their content; then code, lock and image, where there are any."""
    found = [_item(f"input/{role}", content) for role, content in identity["inputs"].items()]
    for name in ("code", "lock", "image"):
        value = identity.get(name)
        if value is not None:
            found.append(_item(name, str(value).removeprefix("sha256:")))
    return sorted(found, key=lambda item: str(item["name"]))


def evaluated(manifest: Manifest, model: Manifest) -> bytes:
    """Test result of an evaluation: which checkpoint was measured, and which files say how well.

    Measuring has no threshold: a set whose items were measured counts as passed.

    Args:
        manifest: of the stage of kind ``evaluate``.
        model: of the checkpoint it measured.
    """
    sets = sorted(path.removesuffix(".jsonl") for path in manifest.files if path.endswith(".jsonl"))
    return _tested([*subjects(manifest), *subjects(model)], manifest, sets, [])


def judged(manifest: Manifest, claims: list[Value]) -> bytes:
    """Test result of the run's table: the recipe's claims that were met, and those that were not.

    Args:
        manifest: of the stage of kind ``results``.
        claims: of its ``results.json``.
    """
    met = [claim["about"] for claim in claims if claim["met"]]
    missed = [claim["about"] for claim in claims if not claim["met"]]
    return _tested(subjects(manifest), manifest, met, missed)


def _tested(about: list[Value], manifest: Manifest, passed: list[str], failed: list[str]) -> bytes:
    settings = sha256_bytes(json_bytes(manifest.identity.get("settings")))
    predicate = {
        "result": "FAILED" if failed else "PASSED",
        "configuration": [_item("settings", settings), *_dependencies(manifest.identity)],
        "passedTests": passed,
        "warnedTests": [],
        "failedTests": failed,
    }
    return _statement(about, TEST_RESULT, predicate)


def run(recipe: str, recipe_hash: str, contents: Mapping[str, str], tree: Value) -> bytes:
    """The root of a whole run, with each stage's content and the tree over all files.

    Args:
        recipe: its name.
        recipe_hash: of its settings as written.
        contents: stage to content.
        tree: ``root`` (64 hex digits) and ``count`` of the leaves of ``instella.statements.tree``.
    """
    root = sha256_bytes(json_bytes(dict(contents)))
    predicate = {
        "recipe": {"name": recipe, "sha256": recipe_hash},
        "root": root,
        "stages": dict(contents),
        "files": tree,
    }
    return _statement([_item(recipe, root)], RUN, predicate)


def model(manifest: Manifest) -> bytes:
    """OpenSSF model signature, version 1.0, over all files of a checkpoint's folder.

    The subject's digest is the SHA-256 over the digests of the files in the order of their paths,
    as the format has it. The kit's manifest beside the files is no part of the model.
    """
    paths = sorted(manifest.files, key=PurePosixPath)
    digests = b"".join(bytes.fromhex(manifest.files[path].sha256) for path in paths)
    predicate = {
        "serialization": {
            "method": "files",
            "hash_type": "sha256",
            "allow_symlinks": False,
            "ignore_paths": [NAME],
        },
        "resources": [
            {"name": path, "algorithm": "sha256", "digest": manifest.files[path].sha256}
            for path in paths
        ],
    }
    return _statement([_item(manifest.stage, sha256_bytes(digests))], MODEL_SIGNATURE, predicate)


def subjects(manifest: Manifest) -> list[Value]:
    """Every file of an artifact, under its path in the folder of results."""
    return [
        _item(f"{manifest.stage}/{path}", entry.sha256)
        for path, entry in sorted(manifest.files.items())
    ]


def _item(name: str, sha256: str) -> Value:
    return {"name": name, "digest": {"sha256": sha256}}


def _statement(about: list[Value], predicate_type: str, predicate: Value) -> bytes:
    return json_bytes(
        {
            "_type": STATEMENT_TYPE,
            "subject": about,
            "predicateType": predicate_type,
            "predicate": predicate,
        }
    )
