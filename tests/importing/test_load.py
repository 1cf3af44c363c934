"""A published folder, whose own code needs vLLM, loads through the kit's class."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from instella.model import InstellaConfig, InstellaForCausalLM
from instella.network.folder import load_folder

from .published import ROOT, Place, read_tensors

PROBE = """
import sys
from instella.model import InstellaForCausalLM
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
assert type(model) is InstellaForCausalLM
odd = [n for n in sys.modules if "modeling_instella" in n or n.startswith("transformers_modules.")]
assert not odd and "vllm" not in sys.modules, odd
print(model.dtype, sum(p.numel() for p in model.parameters()))
"""


@pytest.mark.parametrize("options", [{}, {"trust_remote_code": False}, {"trust_remote_code": True}])
def test_the_class_is_ours(folder: Path, options: dict[str, bool]) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder, **options)
    assert type(model) is InstellaForCausalLM
    assert type(AutoConfig.from_pretrained(folder, **options)) is InstellaConfig
    assert not [name for name in sys.modules if "modeling_instella" in name]
    assert "vllm" not in sys.modules
    for name, tensor in read_tensors(folder).items():
        assert model.state_dict()[name].dtype == torch.bfloat16
        assert torch.equal(model.state_dict()[name], tensor)
    ids = torch.arange(2, 14).view(2, 6)
    plain = load_folder(folder, "native-cpu").float()
    with torch.no_grad():
        torch.testing.assert_close(model.float()(ids).logits, plain(ids), rtol=0, atol=5e-5)


def test_in_a_process_of_its_own(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(folder)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == "torch.bfloat16"


def test_the_tokenizer_loads_too(place: Place, folder: Path) -> None:
    text = "the cat sat on <|endoftext|> 12"
    theirs = AutoTokenizer.from_pretrained(folder)(text)["input_ids"]
    assert theirs == AutoTokenizer.from_pretrained(place.tokenizer())(text)["input_ids"]
