"""Runs in verl's environment: ``python -P -m instella.engines.verl.inside ACTION``.

Reads one JSON object from its standard input and writes one as the last line of its output.
``check`` composes verl's configuration from overrides and lets verl validate it; ``merge`` makes
one Hugging Face folder of a sharded checkpoint.
"""

import json
import sys
from pathlib import Path
from typing import Any


def compose_words(words: list[str]) -> Any:
    """verl's own configuration with overrides on top."""
    from hydra import compose, initialize_config_module

    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer", overrides=words)


def check(request: dict[str, Any]) -> dict[str, Any]:
    """Compose ``words`` over verl's own configuration, validate it, and give it back in full."""
    from omegaconf import OmegaConf
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    config = compose_words(request["words"])
    validate_config(config, need_reference_policy(config), need_critic(config))
    # Each makes an object of its part, which looks at names and types.
    for part in ("actor_rollout_ref.actor", "actor_rollout_ref.rollout", "algorithm"):
        omega_conf_to_dataclass(OmegaConf.select(config, part))
    resolved: Any = OmegaConf.to_container(config, resolve=False)
    del resolved["reward"]["reward_model"]["rollout"]["name"]
    return {"config": resolved}


def merge(request: dict[str, Any]) -> dict[str, Any]:
    """Merge the shards in ``actor``, and write the model into ``target``."""
    from verl.model_merger.base_model_merger import ModelMergerConfig
    from verl.model_merger.fsdp_model_merger import FSDPModelMerger

    actor = Path(request["actor"])
    config = ModelMergerConfig(
        operation="merge",
        backend="fsdp",
        local_dir=str(actor),
        target_dir=request["target"],
        hf_model_config_path=str(actor / "huggingface"),
    )
    Path(request["target"]).mkdir()
    FSDPModelMerger(config).merge_and_save()
    return {}


def main() -> None:
    """Serve one request."""
    action = {"check": check, "merge": merge}[sys.argv[1]]
    import instella.engines.verl.model  # noqa: F401 (tells transformers of the model)

    reply = action(json.load(sys.stdin))
    print("\n" + json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
