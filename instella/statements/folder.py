"""The statements of a run: which there are, where they lie, how they are signed and verified.

    statements/run.intoto.jsonl                  root, contents and tree of files of the whole run
    statements/provenance/STAGE.intoto.jsonl     SLSA provenance of each stage
    statements/scores/STAGE.intoto.jsonl         test result of each evaluation and of the table
    statements/models/STAGE.sig                  OpenSSF model signature of each checkpoint

They lie beside the stages and are part of no artifact and of no root. A payload follows from
manifests alone, so verifying means: compute it again, compare, and verify the signature.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from instella.artifacts.manifest import Manifest
from instella.artifacts.places import STATEMENTS
from instella.artifacts.store import Store
from instella.canonical import json_bytes, parse_json, sha256_bytes
from instella.errors import BadUse, VerificationError
from instella.recipe.graph import Stage
from instella.statements import predicates
from instella.statements.envelope import bundle, envelope, open_file, pae
from instella.statements.keys import PublicKey, Signer
from instella.statements.predicates import RESULTS
from instella.statements.tree import leaves, read_whole, tree_of

RUN_FILE = "run.intoto.jsonl"
SUFFIX, MODEL_SUFFIX = ".intoto.jsonl", ".sig"
FOLDERS = ("provenance", "scores", "models")
MAX_SHOWN = 80


@dataclass(frozen=True)
class Finished:
    """A finished run.

    Attributes:
        recipe, recipe_hash: its name, and the hash of its settings as written.
        graph: of the recipe.
        manifests: of every stage of the graph.
        results: folder of its results.
        store: where the bytes lie.
    """

    recipe: str
    recipe_hash: str
    graph: Mapping[str, Stage]
    manifests: Mapping[str, Manifest]
    results: Path
    store: Store

    @property
    def contents(self) -> dict[str, str]:
        """Stage to content."""
        return {name: manifest.content for name, manifest in self.manifests.items()}

    @property
    def root(self) -> str:
        """Of the run, 64 hex digits."""
        return sha256_bytes(json_bytes(self.contents))

    @property
    def folder(self) -> Path:
        """Where its statements lie."""
        return self.results / STATEMENTS


def payloads(run: Finished) -> dict[str, bytes]:
    """File below the folder of statements to what it has to state.

    Raises:
        VerificationError: a file that has to be read is not what its manifest says.
    """
    tree = tree_of(leaves(run.manifests, run.store))
    found = {RUN_FILE: predicates.run(run.recipe, run.recipe_hash, run.contents, tree)}
    for name, manifest in run.manifests.items():
        found[f"provenance/{name}{SUFFIX}"] = predicates.provenance(manifest)
        if manifest.kind == "evaluate":
            model = run.manifests[run.graph[name].inputs["model"]]
            found[f"scores/{name}{SUFFIX}"] = predicates.evaluated(manifest, model)
        elif manifest.kind == "results":
            claims = _claims(run.store, manifest)
            found[f"scores/{name}{SUFFIX}"] = predicates.judged(manifest, claims)
        if is_checkpoint(manifest):
            found[f"models/{name}{MODEL_SUFFIX}"] = predicates.model(manifest)
    return found


def is_checkpoint(manifest: Manifest) -> bool:
    """Whether an artifact is a Hugging Face folder with weights."""
    has_weights = any(path.endswith(".safetensors") for path in manifest.files)
    return has_weights and "config.json" in manifest.files


def _claims(store: Store, manifest: Manifest) -> list[dict[str, Any]]:
    path = f"{manifest.stage}/{RESULTS}"
    if RESULTS not in manifest.files:
        raise VerificationError(f"{path}: missing, so nothing can be stated of it")
    value = parse_json(read_whole(store, manifest.files[RESULTS], path), path)
    try:
        return [{"about": str(item["about"]), "met": bool(item["met"])} for item in value["claims"]]
    except (KeyError, TypeError):
        raise VerificationError(f"{path}: its claims have another form") from None


def signed(stated: Mapping[str, bytes], signer: Signer) -> dict[str, bytes]:
    """File below the folder of statements to its bytes, of what ``payloads`` gave."""
    signatures = signer.sign([pae(payload) for payload in stated.values()])
    key, found = signer.public, {}
    for (name, payload), signature in zip(stated.items(), signatures, strict=True):
        if name.endswith(MODEL_SUFFIX):
            found[name] = json_bytes(bundle(payload, signature, key))
        else:
            found[name] = json_bytes(envelope(payload, signature, key.keyid))
    return found


def write(run: Finished, files: Mapping[str, bytes]) -> None:
    """Put statements into the run's folder; earlier ones that have no successor go.

    Raises:
        BadUse: a link or a file stands where one of the folders belongs.
    """
    for place in (run.folder, *(run.folder / name for name in FOLDERS)):
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            raise BadUse(f"{place}: not a folder of the run's own; move it away")
    for name in sorted(set(present(run.folder)) - set(files)):
        (run.folder / name).unlink()
    for name, data in files.items():
        run.store.write(run.folder / name, data)


def present(folder: Path) -> list[str]:
    """What lies below a folder of statements, folders aside."""
    found = [path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]
    return sorted(path.relative_to(folder).as_posix() for path in found)


def refusals(run: Finished, key: PublicKey) -> list[tuple[str, str]]:
    """Each statement that is refused, with the reason in one line; none if all are good.

    Missing ones and files that state nothing are refused too. Bytes of artifacts are not read,
    but for those that ``payloads`` reads.
    """
    stated, there = payloads(run), set(present(run.folder))
    found = []
    for name in sorted({*stated, *there}):
        if name not in stated:
            found.append((name, "states nothing of this run; remove it"))
        elif name not in there:
            found.append((name, "missing; instella statement sign makes it"))
        elif (text := refusal(run.folder / name, stated[name], key)) is not None:
            found.append((name, text))
    return found


def refusal(path: Path, payload: bytes, key: PublicKey) -> str | None:
    """Why a file is not a signed statement with this payload; None if it is."""
    try:
        found = open_file(path, key, path.name.endswith(MODEL_SUFFIX))
        if found == payload:
            return None
        what = _first_difference(parse_json(payload, "run"), parse_json(found, str(path)), "")
    except VerificationError as error:
        return str(error).removeprefix(f"{path}: ")
    return f"well signed, but of another run: {what or 'another form'}"


def _first_difference(expected: Any, found: Any, place: str) -> str | None:
    """The first place in which two JSON values differ, in words."""
    if isinstance(expected, dict) and isinstance(found, dict) and set(expected) == set(found):
        pairs = [(expected[key], found[key], f"{place}.{key}") for key in sorted(expected)]
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = [
            (*pair, f"{place}[{i}]") for i, pair in enumerate(zip(expected, found, strict=True))
        ]
    elif expected == found:
        return None
    else:
        return f"{place.lstrip('.')} is {_shown(found)}, of the run {_shown(expected)}"
    return next((text for pair in pairs if (text := _first_difference(*pair))), None)


def _shown(value: Any) -> str:
    text = json_bytes(value).decode("utf-8").strip()
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
