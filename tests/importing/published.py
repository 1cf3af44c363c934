"""A recipe with its tokenizer's result, and folders with the layout of the published ones."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from instella.artifacts.identity import Toolchain, identity
from instella.artifacts.manifest import Manifest
from instella.artifacts.store import Store
from instella.artifacts.workspace import Workspace
from instella.canonical import write_json
from instella.data.chat import CHAT_TEMPLATE
from instella.data.tokenizer import train_bpe, write_folder
from instella.network.folder import load_folder, save_folder
from instella.network.network import Instella
from instella.recipe.graph import build_graph
from instella.recipe.reader import read_recipe
from instella.recipe.settings import Recipe

ROOT = Path(__file__).parents[2]
TEXT = ["the cat sat on the mat and the dog sat on the log 12 34 " * 20]
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
INDEX = "model.safetensors.index.json"
# As the published Math folder: its own code cannot be loaded without vLLM.
REMOTE_CODE = "import vllm\n\nraise SystemExit('code of the folder ran')\n"


@dataclass(frozen=True)
class Place:
    """A copy of the nano recipe, whose tokenizer has a result."""

    folder: Path

    @property
    def recipe_file(self) -> Path:
        return self.folder / "nano.yaml"

    @property
    def recipe(self) -> Recipe:
        return read_recipe(self.recipe_file)

    @property
    def workspace(self) -> Workspace:
        results, store = self.folder / "results" / "nano", Store(self.folder / "store")
        return Workspace(results, store, self.folder / "downloads", self.folder)

    def toolchain(self) -> Toolchain:
        return Toolchain.here(self.recipe.numerics)

    def options(self) -> list[str]:
        """Of the command line; behind the subcommand."""
        return [
            "--recipe", str(self.recipe_file), "--results", str(self.folder / "results"),
            "--store", str(self.folder / "store"), "--config", str(ROOT / "config.yaml"),
        ]  # fmt: skip

    def tokenizer(self) -> Path:
        return self.workspace.results / "tokenizer"


def make_place(folder: Path, text: list[str] = TEXT) -> Place:
    """Learn a tokenizer and publish it as the stage's result."""
    folder.mkdir()
    shutil.copy(ROOT / "recipes" / "nano.yaml", folder / "nano.yaml")
    place = Place(folder)
    settings, files = place.recipe.tokenizer, folder / "tokenizer"
    files.mkdir()
    write_folder(files, train_bpe(text, settings), 0, 1, CHAT_TEMPLATE)
    stage = build_graph(place.recipe)["tokenizer"]
    store = place.workspace.store
    entries = {path.name: store.publish(path) for path in sorted(files.iterdir())}
    made = identity(stage, place.toolchain(), dict.fromkeys(stage.inputs, "0" * 64))
    manifest = Manifest("tokenizer", stage.kind, "computed", made, entries)
    store.place(manifest, place.tokenizer())
    store.write(place.workspace.manifest("tokenizer"), manifest.to_bytes())
    return place


def make_folder(folder: Path, place: Place, dtype: torch.dtype = torch.bfloat16) -> Path:
    """A folder as transformers 4 publishes one: two shards, code of its own, old keys."""
    folder.mkdir()
    network = Instella(place.recipe.model, "native-cpu")
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
    save_folder(folder, network.to(dtype), place.tokenizer(), 64)
    config = json.loads((folder / "config.json").read_bytes())
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.48.0"
    config["auto_map"] = {
        "AutoConfig": "modeling_instella.InstellaConfig",
        "AutoModelForCausalLM": "modeling_instella.InstellaForCausalLM",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    (folder / "modeling_instella.py").write_text(REMOTE_CODE)
    (folder / "README.md").write_text("# A model\n")
    special = {
        "bos_token": {"content": "<|endoftext|>", "lstrip": False, "special": True},
        "eos_token": "<|endoftext|>",
        "pad_token": "<|padding|>",
    }
    (folder / "special_tokens_map.json").write_text(json.dumps(special))
    change_json(
        folder / "tokenizer_config.json",
        tokenizer_class="GPTNeoXTokenizerFast",
        chat_template="{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}",
    )
    write_shards(folder, read_tensors(folder))
    return folder


def read_tensors(folder: Path) -> dict[str, torch.Tensor]:
    return dict(load_folder(folder, "native-cpu").state_dict())


def write_shards(folder: Path, state: dict[str, torch.Tensor], cut: int = 10) -> None:
    """Two files and their index in place of what is there."""
    for path in folder.glob("*.safetensors*"):
        path.unlink()
    names = sorted(state)
    places: dict[str, str] = {}
    for file, part in zip(SHARDS, (names[:cut], names[cut:]), strict=True):
        save_file({name: state[name] for name in part}, folder / file, metadata={"format": "pt"})
        places.update(dict.fromkeys(part, file))
    size = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
    index = {"metadata": {"total_size": size}, "weight_map": places}
    (folder / INDEX).write_text(json.dumps(index, indent=2))


def change_json(path: Path, **changes: Any) -> None:
    """Set keys of a JSON object in a file; None stands for null."""
    write_json(path, {**json.loads(path.read_bytes()), **changes})
