"""CycloneDX 1.6: the packages of each environment, and what each model is made of.

Neither a time nor a serial number is written, so the same lock and the same run give the same
bytes. Licences of packages are not in a lock and are left out.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from instella.canonical import json_bytes, sha256_file
from instella.containers.sbom import python_component
from instella.exports.finished import Finished
from instella.exports.terms import Terms, carried
from instella.recipe.derived import parameter_count
from instella.recipe.imports import ancestors
from instella.wheels import BYTES_LOCK, locked_hashes

SPEC = "1.6"
SUFFIX = ".cdx.json"
# How a stage of a kind learns, in the words that CycloneDX allows.
_APPROACHES = {
    "pretrain": "self-supervised",
    "merge": "self-supervised",
    "finetune": "supervised",
    "preference": "supervised",
    "policy": "reinforcement-learning",
}


def environments(requirements: Path) -> dict[str, Path]:
    """Name to lock of every Python environment of the kit, sorted."""
    own = [path for path in requirements.glob("*.lock") if path.name != BYTES_LOCK]
    return {path.stem: path for path in sorted([*own, *requirements.glob("environments/*.lock")])}


def software(name: str, lock: Path) -> bytes:
    """What an environment is made of.

    Args:
        name: of the environment.
        lock: every package with its version and hashes.
    """
    parts = [python_component(item, *found) for item, found in sorted(locked_hashes(lock).items())]
    ref = f"environment:{name}"
    about = {
        "type": "application",
        "bom-ref": ref,
        "name": f"instella-kit environment {name}",
        "version": sha256_file(lock)[:16],
        "hashes": [{"alg": "SHA-256", "content": sha256_file(lock)}],
        "description": f"Python packages of requirements/{_place(lock)}",
    }
    return _bom(about, parts, {ref: [part["bom-ref"] for part in parts]})


def _place(lock: Path) -> str:
    is_inner = lock.parent.name == "environments"
    return f"environments/{lock.name}" if is_inner else lock.name


def model(run: Finished, name: str) -> bytes:
    """What a checkpoint is made of: its files, the models before it, the data with its terms."""
    terms = carried(run.graph, name, run.recipe_file.parent)
    before = ancestors(run.graph, name)
    earlier = [item for item in run.checkpoints() if item in before]
    files = list(_files(run, name))
    data = [_data(item) for item in terms]
    parts = [*files, *(_model(run, item) for item in earlier), *data]
    about = {
        **_model(run, name),
        "licenses": _licences(terms),
        "modelCard": _card(run, name, terms),
    }
    depends = {_ref(name): [part["bom-ref"] for part in files], **_dependencies(run, name, terms)}
    return _bom(about, parts, depends)


def _bom(
    about: Mapping[str, Any], parts: list[dict[str, Any]], depends: Mapping[str, list[str]]
) -> bytes:
    return json_bytes(
        {
            "$schema": f"http://cyclonedx.org/schema/bom-{SPEC}.schema.json",
            "bomFormat": "CycloneDX",
            "specVersion": SPEC,
            "version": 1,
            "metadata": {"component": about},
            "components": parts,
            "dependencies": [
                {"ref": ref, "dependsOn": sorted(set(on))} for ref, on in sorted(depends.items())
            ],
        }
    )


def _ref(stage: str) -> str:
    return f"model:{stage}"


def _model(run: Finished, name: str) -> dict[str, Any]:
    manifest = run.manifests[name]
    return {
        "type": "machine-learning-model",
        "bom-ref": _ref(name),
        "name": f"instella-{run.recipe.name}-{name}",
        "version": manifest.content,
        "description": f"stage {name} ({manifest.kind}) of recipe {run.recipe.name}, "
        f"{manifest.origin}; the version is the content of its manifest",
    }


def _files(run: Finished, name: str) -> Iterator[dict[str, Any]]:
    for path, entry in sorted(run.manifests[name].files.items()):
        yield {
            "type": "file",
            "bom-ref": f"file:{name}/{path}",
            "name": path,
            "hashes": [{"alg": "SHA-256", "content": entry.sha256}],
            "properties": [{"name": "instella:bytes", "value": str(entry.size)}],
        }


def _data(item: Terms) -> dict[str, Any]:
    uses = [{"name": "instella:use", "value": f"{use}: {stage}"} for use, stage in item.uses]
    marks = [{"name": "instella:mark", "value": mark} for mark in item.marks]
    page = [{"name": "instella:terms-accepted-at", "value": item.page}] if item.page else []
    return {
        "type": "data",
        "bom-ref": f"data:{item.name}",
        "name": item.name,
        "description": item.origin,
        "licenses": [{"license": {"name": item.licence}}],
        "data": [{"type": "dataset", "name": item.name, "description": item.origin}],
        "properties": uses + marks + page,
    }


def _licences(terms: list[Terms]) -> list[dict[str, Any]]:
    """Of the model: nobody gave it one, so those of its inputs, each once."""
    texts = dict.fromkeys(f"{item.name}: {item.licence}" for item in terms)
    return [{"license": {"name": text}} for text in texts]


def _dependencies(run: Finished, name: str, terms: list[Terms]) -> dict[str, list[str]]:
    """A checkpoint depends on those it started from, and on the data its own stage reads."""
    names = set(run.checkpoints()) & (ancestors(run.graph, name) | {name})
    found: dict[str, list[str]] = {}
    for stage in names:
        before = [_ref(s) for s in run.graph[stage].inputs.values() if s in names]
        data = [f"data:{i.name}" for i in terms if any(s == stage for _, s in i.uses)]
        found[_ref(stage)] = before + data
    files = [f"file:{name}/{path}" for path in run.manifests[name].files]
    found[_ref(name)] += files
    return found


def _card(run: Finished, name: str, terms: list[Terms]) -> dict[str, Any]:
    kind = run.manifests[name].kind
    shape = run.recipe.model
    trained = [item for item in terms if not item.is_held_out_only]
    return {
        "bom-ref": f"card:{name}",
        "modelParameters": {
            "approach": {"type": _APPROACHES[kind]},
            "task": "text-generation",
            "architectureFamily": "decoder-only transformer",
            "modelArchitecture": "Instella",
            "datasets": [{"ref": f"data:{item.name}"} for item in trained],
            "inputs": [{"format": "text"}],
            "outputs": [{"format": "text"}],
        },
        "quantitativeAnalysis": {"performanceMetrics": _metrics(run, name)},
        "considerations": {"technicalLimitations": list(run.recipe.deviations)},
        "properties": [
            {"name": "instella:parameters", "value": str(parameter_count(shape))},
            {"name": "instella:root", "value": run.root},
            {"name": "instella:numerics", "value": run.recipe.numerics},
        ],
    }


def _metrics(run: Finished, name: str) -> list[dict[str, Any]]:
    return [
        {
            "type": metric,
            "value": f"{figure['value']:.6g}",
            "slice": f"{held_out}, {figure['items']} items",
            "confidenceInterval": {
                "lowerBound": f"{figure['low']:.6g}",
                "upperBound": f"{figure['high']:.6g}",
            },
        }
        for held_out, metric, figure in scores(run, name)
    ]


def scores(run: Finished, name: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Held-out set, metric and figure of everything that a checkpoint was measured on."""
    stage = f"evaluate_{name}"
    if stage not in run.manifests:
        return []
    found = run.json(stage, "scores.json")
    return [
        (held_out, metric, figure)
        for held_out, metrics in sorted(found.items())
        for metric, figure in sorted(metrics.items())
    ]
