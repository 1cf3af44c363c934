"""Tells vLLM of the kit's model: a plugin, which vLLM loads in each of its processes.

vLLM finds it by ``PLUGIN`` in PYTHONPATH, so that nothing has to be installed. Its transformers
backend is no way for this model: vLLM takes models of the transformers library there, or code
that lies in a checkpoint's folder.
"""

from pathlib import Path

PLUGIN = Path("instella/engines/vllm/plugin")
NAME = "InstellaForCausalLM"
# A name of its own, which the code hash of a stage follows.
MODULE = "instella.engines.vllm.model"


def python_path(root: Path) -> str:
    """PYTHONPATH with the kit and its plugin.

    Args:
        root: folder that holds the kit's package.
    """
    return f"{root}:{root / PLUGIN}"


def register() -> None:
    """Called by vLLM. The model itself is imported where it is made."""
    from vllm import ModelRegistry

    # Importing the package tells transformers of the configuration.
    import instella.model  # noqa: F401

    ModelRegistry.register_model(NAME, f"{MODULE}:{NAME}")
