"""Checks of sources, mixtures and tokenizer that a field's own bounds cannot express."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from instella.data.adapter_names import ADAPTER_NAMES
from instella.recipe.fields import Place, Places, suggestion
from instella.recipe.graph import SYNTHETIC
from instella.recipe.settings import Part, Recipe, Source, Tokenizer

NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
RECIPE_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
SHA256 = re.compile(r"[0-9a-f]{64}")
COMMIT = re.compile(r"[0-9a-f]{40}")
REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")

# Token ids are stored as uint16.
MAX_VOCABULARY = 65535

REQUIRED = {
    "package": ("package", "version", "archive", "sha256", "members"),
    "generated": ("generator", "version", "seed", "size"),
    "file": ("path", "sha256"),
    "hub": ("repository",),
}
OPTIONAL = {
    "package": (),
    "generated": ("options",),
    "file": (),
    "hub": ("repository_type", "revision", "files", "lock"),
}
COMMON = ("kind", "licence")


def check_data(recipe: Recipe, places: Places) -> None:
    """Names, sources, parts and tokenizer of a recipe; BadUse at the first fault."""
    if not RECIPE_NAME.fullmatch(recipe.name):
        cure = "use a-z, 0-9, _ and -, a letter first"
        raise places.error(("name",), f"is '{recipe.name}', not a name", cure)
    if not recipe.about.strip():
        raise places.error(("about",), "is empty", "say in one sentence what it trains")
    if recipe.published is not None and not _stays_below(recipe.published):
        what = f"is '{recipe.published}', not a folder below the recipe's"
        raise places.error(("published",), what, "write it relative to the recipe file")
    for group, names in (("sources", recipe.sources), ("sets", recipe.evaluation.sets)):
        parent: Place = (group,) if group == "sources" else ("evaluation", group)
        for name in names:
            if not NAME.fullmatch(name):
                what = "is not a name"
                raise places.error((*parent, name), what, "use a-z, 0-9 and _, a letter first")
    for name, source in recipe.sources.items():
        _check_source(source, ("sources", name), places)
    for place, part in parts_of(recipe):
        _check_part(part, place, recipe, places)
    _check_tokenizer(recipe, places)
    _check_vocabulary(recipe, places)


def parts_of(recipe: Recipe) -> Iterator[tuple[Place, Part]]:
    """Every part of every mixture, with its place."""
    for index, part in enumerate(recipe.tokenizer.parts):
        yield ("tokenizer", "parts", index), part
    for stage in recipe.stages.__dataclass_fields__:
        for index, part in enumerate(getattr(recipe.stages, stage).data.parts):
            yield ("stages", stage, "data", "parts", index), part
    for name, item in recipe.evaluation.sets.items():
        yield ("evaluation", "sets", name, "part"), item.part
    for index, part in enumerate(recipe.synthesis.problems if recipe.synthesis else ()):
        yield ("synthesis", "problems", index), part


def _check_source(source: Source, place: Place, places: Places) -> None:
    allowed = (*COMMON, *REQUIRED[source.kind], *OPTIONAL[source.kind])
    for name in source.__dataclass_fields__:
        value = getattr(source, name)
        if name not in allowed and places.written((*place, name)) and value not in (None, ()):
            what = f"does not belong to a source of kind '{source.kind}'"
            raise places.error((*place, name), what, f"remove it; allowed: {', '.join(allowed)}")
    for name in REQUIRED[source.kind]:
        if getattr(source, name) in (None, "", ()):
            what = "is missing"
            raise places.error((*place, name), what, f"a source of kind '{source.kind}' needs it")
    if not source.licence.strip():
        raise places.error((*place, "licence"), "is empty", "name it, or write 'unknown'")
    _check_digests(source, place, places)
    _check_paths(source, place, places)


def _check_digests(source: Source, place: Place, places: Places) -> None:
    if source.sha256 is not None and not SHA256.fullmatch(source.sha256):
        what = f"is not a SHA-256 ({len(source.sha256)} characters)"
        raise places.error((*place, "sha256"), what, "write its 64 lower-case hex digits")
    if source.revision is not None and not COMMIT.fullmatch(source.revision):
        what = "is not a commit"
        cure = "write its 40 lower-case hex digits, or null while it is unknown"
        raise places.error((*place, "revision"), what, cure)
    if source.repository is not None and not REPOSITORY.fullmatch(source.repository):
        what = f"is '{source.repository}'"
        raise places.error((*place, "repository"), what, "write owner/name")


def _check_paths(source: Source, place: Place, places: Places) -> None:
    if source.archive is not None and PurePosixPath(source.archive).name != source.archive:
        raise places.error((*place, "archive"), "is not a file name", "write it without a folder")
    inside = [(("members", index), path) for index, path in enumerate(source.members)]
    inside += [(("files", index), path) for index, path in enumerate(source.files)]
    for tail, path in inside:
        if not _stays_below(path):
            what = f"is '{path}', which leaves the source"
            raise places.error((*place, *tail), what, "write a path below its root")
    for name in ("path", "lock"):
        value = getattr(source, name)
        if value is not None and not _stays_below(value):
            what = f"is '{value}', which leaves the recipe's folder"
            raise places.error(
                (*place, name), what, "write a path in it, relative to the recipe file"
            )


def _stays_below(path: str) -> bool:
    return _is_relative(path) and ".." not in PurePosixPath(path).parts


def _is_relative(path: str) -> bool:
    windows = "\\" in path or path[1:2] == ":"
    return bool(path) and "\0" not in path and not windows and not path.startswith("/")


def _check_part(part: Part, place: Place, recipe: Recipe, places: Places) -> None:
    is_synthetic = part.source == SYNTHETIC and place[0] == "stages"
    if part.source not in recipe.sources and not is_synthetic:
        what = f"names the unknown source '{part.source}'"
        raise places.error((*place, "source"), what, suggestion(part.source, recipe.sources))
    if part.adapter not in ADAPTER_NAMES:
        what = f"names the unknown adapter '{part.adapter}'"
        raise places.error((*place, "adapter"), what, suggestion(part.adapter, ADAPTER_NAMES))


def _check_tokenizer(recipe: Recipe, places: Places) -> None:
    tokenizer = recipe.tokenizer
    needed = {"bpe": ("parts", "vocab_size"), "file": ("source", "member")}
    foreign = {
        "bpe": ("source", "member"),
        "file": ("parts", "vocab_size", "individual_digits", "max_characters"),
    }
    for name in foreign[tokenizer.kind]:
        if places.written(("tokenizer", name)) and getattr(tokenizer, name) not in (None, ()):
            what = f"does not belong to a tokenizer of kind '{tokenizer.kind}'"
            raise places.error(("tokenizer", name), what, "remove it")
    for name in needed[tokenizer.kind]:
        if getattr(tokenizer, name) in (None, "", ()):
            what = "is missing"
            cure = f"a tokenizer of kind '{tokenizer.kind}' needs it"
            raise places.error(("tokenizer", name), what, cure)
    if tokenizer.source is not None and tokenizer.source not in recipe.sources:
        what = f"names the unknown source '{tokenizer.source}'"
        cure = suggestion(tokenizer.source, recipe.sources)
        raise places.error(("tokenizer", "source"), what, cure)


def _check_vocabulary(recipe: Recipe, places: Places) -> None:
    tokenizer: Tokenizer = recipe.tokenizer
    rows = recipe.model.vocab_size
    if rows > MAX_VOCABULARY:
        what = f"is {rows}, but token ids are stored in 16 bits"
        raise places.error(("model", "vocab_size"), what, f"write at most {MAX_VOCABULARY}")
    if tokenizer.vocab_size is not None and tokenizer.vocab_size > rows:
        what = f"is {tokenizer.vocab_size}, more than model.vocab_size {rows}"
        raise places.error(("tokenizer", "vocab_size"), what, "make the model's at least as large")
    # Every published file of Instella has these ids, and so has every checkpoint made here.
    for name, fixed in (("eos_id", 0), ("pad_id", 1)):
        if getattr(tokenizer, name) != fixed:
            what = f"is {getattr(tokenizer, name)}, but Instella's checkpoints have {fixed}"
            raise places.error(("tokenizer", name), what, f"write {fixed}")
