"""A finished run as Workflow Run RO-Crate, profile "Provenance Run Crate" 0.5.

The crate is a folder: every artifact's files as hard links to the store where that is possible,
the manifests, the recipe and the workflow's files. Times are the journal's, the only part that
another run of the same recipe has otherwise; hosts and paths are left out.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from instella.artifacts.manifest import NAME
from instella.artifacts.stamps import Stamps
from instella.artifacts.store import describe
from instella.canonical import json_bytes, sha256_file, write_bytes
from instella.errors import Incomplete, VerificationError
from instella.exports.finished import Finished
from instella.exports.terms import carried
from instella.recipe.imports import RESULTS
from instella.recipe.settings import Source
from instella.wheels import locked_hashes

METADATA = "ro-crate-metadata.json"
ARTIFACTS = "artifacts"
WORKFLOW = "workflow/Snakefile"
RECIPE = "recipe.yaml"
LOCK = "run.lock"
TERMS = "#terms"
PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": "Process Run Crate",
    "https://w3id.org/ro/wfrun/workflow/0.5": "Workflow Run Crate",
    "https://w3id.org/ro/wfrun/provenance/0.5": "Provenance Run Crate",
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": "Workflow RO-Crate",
}
CONTEXT = "https://w3id.org/ro/crate/1.1/context"
_RUN_TERMS = "https://w3id.org/ro/terms/workflow-run#"
# Words of the workflow-run vocabulary that the context of RO-Crate 1.1 lacks.
_RUN_WORDS = ("resourceUsage", "containerImage", "sha256")
_FORMS = {
    ".gz": "application/gzip",
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".md": "text/markdown",
    ".py": "text/x-python",
    ".txt": "text/plain",
}
SECONDS = "http://qudt.org/vocab/unit/SEC"

Entity = dict[str, Any]


def write_crate(run: Finished, folder: Path, project: Path) -> int:
    """Write the crate into an existing, empty folder; the number of its entities.

    Args:
        run: the finished run.
        folder: gets the crate.
        project: holds the workflow's files and the lock.

    Raises:
        Incomplete: the journal of the last stage is missing, so that no date is known.
        VerificationError: the store does not hold what a manifest names.
    """
    objects = {
        run.store.object_path(entry.sha256): entry
        for manifest in run.manifests.values()
        for entry in manifest.files.values()
    }
    before = {path: (entry, path.lstat()) for path, entry in objects.items() if path.is_file()}
    _check_objects(run)
    for name, manifest in run.manifests.items():
        target = folder / ARTIFACTS / name
        run.store.place(manifest, target)
        write_bytes(target / NAME, manifest.to_bytes())
    # A link changes a time of an object, which would be read again for that.
    Stamps(run.store).renew(before)
    copies = {RECIPE: run.recipe_file, LOCK: project / "requirements" / "run.lock"}
    copies[WORKFLOW] = project / "Snakefile"
    for path in sorted((project / "workflow" / "rules").glob("*.smk")):
        copies[f"workflow/workflow/rules/{path.name}"] = path
    for name, path in copies.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, folder / name)
    entities = (_single(item) for item in _entities(run, folder, list(copies)))
    graph = sorted(entities, key=lambda item: str(item["@id"]))
    context = [CONTEXT, {name: _RUN_TERMS + name for name in _RUN_WORDS}]
    write_bytes(folder / METADATA, json_bytes({"@context": context, "@graph": graph}))
    return len(graph)


def _check_objects(run: Finished) -> None:
    owners = {
        entry: (name, path)
        for name, manifest in run.manifests.items()
        for path, entry in manifest.files.items()
    }
    for entry, found in run.store.examine_all(owners).items():
        name, path = owners[entry]
        raise VerificationError(
            f"{name}: {path}: expected {describe(entry)}, found {found}; ./kit run makes it again"
        )


def _entities(run: Finished, folder: Path, copies: list[str]) -> Iterator[Entity]:
    yield {
        "@id": METADATA,
        "@type": "CreativeWork",
        "about": _to("./"),
        "conformsTo": [
            _to("https://w3id.org/ro/crate/1.1"),
            _to("https://w3id.org/workflowhub/workflow-ro-crate/1.0"),
        ],
    }
    yield _root(run, copies)
    for place, name in PROFILES.items():
        version = place.rpartition("/")[2]
        yield {"@id": place, "@type": "CreativeWork", "name": name, "version": version}
    yield {
        "@id": TERMS,
        "@type": "CreativeWork",
        "name": "Terms of the inputs",
        "description": "\n".join(f"{i.name}: {i.licence}" for i in _terms(run)),
    }
    yield from _copied(folder, copies)
    yield from _workflow(run, folder)
    for name in run.manifests:
        yield from _artifact(run, name)
        yield from _action(run, name)


def _terms(run: Finished) -> list[Any]:
    """Of everything: the last stage reads from all others."""
    return carried(run.graph, RESULTS, run.recipe_file.parent)


def _root(run: Finished, copies: list[str]) -> Entity:
    last = run.executions.get(RESULTS)
    if last is None:
        raise Incomplete(
            "ro-crate: the journal has no line of the stage results, and a crate needs its date; "
            "./kit run writes one"
        )
    artifacts = [_folder_of(name) for name in run.manifests]
    return {
        "@id": "./",
        "@type": "Dataset",
        "name": f"Run of recipe {run.recipe.name}, root {run.root[:16]}",
        "description": f"{run.recipe.about}. Root {run.root}: the SHA-256 over the contents of all "
        "stages. Times are those of the run's journal.",
        "datePublished": last.ended,
        "identifier": f"sha256:{run.root}",
        "license": _to(TERMS),
        "conformsTo": [_to(place) for place in PROFILES],
        "hasPart": [_to(name) for name in (*copies, *artifacts)],
        "mainEntity": _to(WORKFLOW),
        "mentions": [_to("#run"), _to("#engine-run"), *(_to(f"#run-{n}") for n in run.manifests)],
    }


def _copied(folder: Path, copies: list[str]) -> Iterator[Entity]:
    words = {
        RECIPE: ("Recipe", "every setting of the run", "application/yaml"),
        LOCK: ("Lock", "every Python package of the run with its hashes", "text/plain"),
    }
    for name in copies:
        if name != WORKFLOW:
            title, about, form = words.get(name, ("Rules", "rules of the workflow", "text/plain"))
            yield {
                "@id": name,
                "@type": "File",
                "name": title,
                "description": about,
                "encodingFormat": form,
                **_size_and_hash(folder / name),
                **({"exampleOfWork": _to("#input-recipe")} if name == RECIPE else {}),
            }


def _size_and_hash(path: Path) -> Entity:
    return {"contentSize": str(path.stat().st_size), "sha256": sha256_file(path)}


def _workflow(run: Finished, folder: Path) -> Iterator[Entity]:
    kinds = sorted({manifest.kind for manifest in run.manifests.values()})
    versions = locked_hashes(folder / LOCK)
    engine = versions["snakemake"][0]
    yield {
        "@id": WORKFLOW,
        "@type": ["File", "SoftwareSourceCode", "ComputationalWorkflow", "HowTo"],
        "name": "Instella, reproduced",
        "description": "The recipe's stages as rules of Snakemake",
        "version": sha256_file(folder / WORKFLOW)[:16],
        "programmingLanguage": _to("#snakemake-language"),
        "hasPart": [_to(f"#kind-{kind}") for kind in kinds],
        "step": [_to(f"#step-{name}") for name in run.manifests],
        "input": [_to("#input-recipe")],
        "output": [_to("#output-results")],
        "encodingFormat": "text/plain",
        "license": "Apache-2.0",
        **_size_and_hash(folder / WORKFLOW),
    }
    yield {
        "@id": "#snakemake-language",
        "@type": "ComputerLanguage",
        "name": "Snakemake",
        "identifier": _to("https://doi.org/10.1093/bioinformatics/bts480"),
        "url": _to("https://snakemake.github.io"),
    }
    yield _parameter("#input-recipe", "recipe", "File", RECIPE)
    yield _parameter("#output-results", "results", "Dataset", _folder_of(RESULTS))
    yield {
        "@id": "#engine",
        "@type": "SoftwareApplication",
        "name": "Snakemake",
        "softwareVersion": engine,
        "url": _to("https://snakemake.github.io"),
    }
    for kind in kinds:
        yield _tool(run, kind)
    for position, name in enumerate(run.manifests):
        yield {
            "@id": f"#step-{name}",
            "@type": "HowToStep",
            "name": name,
            "position": str(position),
            "workExample": _to(f"#kind-{run.manifests[name].kind}"),
        }
        yield {
            "@id": f"#control-{name}",
            "@type": "ControlAction",
            "name": f"orchestrate {name}",
            "instrument": _to(f"#step-{name}"),
            "object": _to(f"#run-{name}"),
        }
    yield {
        "@id": "#engine-run",
        "@type": "OrganizeAction",
        "name": "Snakemake runs the stages",
        "instrument": _to("#engine"),
        "object": [_to(f"#control-{name}") for name in run.manifests],
        "result": _to("#run"),
        **_times(run, *run.manifests),
    }
    yield {
        "@id": "#run",
        "@type": "CreateAction",
        "name": f"Run of recipe {run.recipe.name}",
        "description": f"All stages, in the graph's order; numerics class {run.recipe.numerics}",
        "instrument": _to(WORKFLOW),
        "object": [_to(RECIPE)],
        "result": [_to(_folder_of(name)) for name in run.manifests],
        "actionStatus": "http://schema.org/CompletedActionStatus",
        **_times(run, *run.manifests),
    }


def _parameter(place: str, name: str, kind: str, example: str) -> Entity:
    return {
        "@id": place,
        "@type": "FormalParameter",
        "additionalType": kind,
        "name": name,
        "valueRequired": True,
        "workExample": _to(example),
    }


def _tool(run: Finished, kind: str) -> Entity:
    codes = {
        str(item.identity["code"])
        for item in run.manifests.values()
        if item.kind == kind and "code" in item.identity
    }
    return {
        "@id": f"#kind-{kind}",
        "@type": "SoftwareApplication",
        "name": f"instella.stages.{kind}",
        "description": "Function of the kit that makes a stage of this kind; its version is the "
        "hash of the code that it uses",
        "softwareVersion": ", ".join(sorted(codes)) or "imported: nothing was run",
    }


def _folder_of(name: str) -> str:
    return f"{ARTIFACTS}/{name}/"


def _artifact(run: Finished, name: str) -> Iterator[Entity]:
    manifest = run.manifests[name]
    place = _folder_of(name)
    paths = [NAME, *manifest.files]
    stage: Entity = {
        "@id": place,
        "@type": "Dataset",
        "name": f"{name}, content {manifest.content[:16]}",
        "description": f"Result of stage {name} (kind {manifest.kind}, {manifest.origin})",
        "identifier": f"sha256:{manifest.content}",
        "hasPart": [_to(place + path) for path in paths],
    }
    if manifest.kind == "source":
        source: Source = run.graph[name].settings["source"]
        stage["license"] = source.licence
    if name == RESULTS:
        stage["exampleOfWork"] = _to("#output-results")
    yield stage
    data = manifest.to_bytes()
    yield {
        "@id": place + NAME,
        "@type": "File",
        "name": f"manifest of {name}",
        "description": "Files with SHA-256, identity with every setting, contents of the inputs",
        "encodingFormat": "application/json",
        "contentSize": str(len(data)),
    }
    for path, entry in manifest.files.items():
        yield {
            "@id": place + path,
            "@type": "File",
            "name": path,
            "encodingFormat": _form(path),
            "contentSize": str(entry.size),
            "sha256": entry.sha256,
        }


def _action(run: Finished, name: str) -> Iterator[Entity]:
    manifest, execution = run.manifests[name], run.executions.get(name)
    inputs = list(dict.fromkeys(run.graph[name].inputs.values()))
    action: Entity = {
        "@id": f"#run-{name}",
        "@type": "CreateAction",
        "name": f"run of {name}",
        "description": _how(run, name),
        "instrument": _to(f"#kind-{manifest.kind}"),
        "object": [_to(_folder_of(source)) for source in inputs] or [_to(RECIPE)],
        "result": [_to(_folder_of(name))],
        "actionStatus": "http://schema.org/CompletedActionStatus",
        **_times(run, name),
    }
    image = manifest.identity.get("image")
    if image is not None:
        action["containerImage"] = _to(f"#image-{image}")
        yield {
            "@id": f"#image-{image}",
            "@type": f"{_RUN_TERMS}ContainerImage",
            "name": "image of instella-kit",
            "sha256": str(image).removeprefix("sha256:"),
        }
    if execution is not None and execution.computed:
        action["resourceUsage"] = [_to(f"#seconds-{name}")]
        yield {
            "@id": f"#seconds-{name}",
            "@type": "PropertyValue",
            "name": "wall time",
            "propertyID": "https://schema.org/duration",
            "value": f"{execution.seconds:g}",
            "unitCode": SECONDS,
        }
    yield action


def _how(run: Finished, name: str) -> str:
    if run.manifests[name].origin == "imported":
        return "Published weights were checked and taken in; nothing was computed"
    execution = run.executions.get(name)
    if execution is None or not execution.computed:
        return "Taken from the store under its identity; when it was computed is not known here"
    return f"Computed with {execution.ranks} processes"


def _times(run: Finished, *names: str) -> Entity:
    """Start and end of stages, as the journal has them; none of what was not computed here."""
    known = [run.executions[name] for name in names if name in run.executions]
    computed = [item for item in known if item.computed]
    if not computed:
        return {"endTime": max(item.ended for item in known)} if known else {}
    started, ended = min(i.started for i in computed), max(i.ended for i in computed)
    return {"startTime": started, "endTime": ended}


def _single(entity: Entity) -> Entity:
    """With lists of one value as that value, as RO-Crate 1.1 recommends."""
    return {
        key: value[0] if isinstance(value, list) and len(value) == 1 else value
        for key, value in entity.items()
    }


def _form(path: str) -> str:
    return _FORMS.get(Path(path).suffix, "application/octet-stream")


def _to(place: str) -> dict[str, str]:
    return {"@id": place}
