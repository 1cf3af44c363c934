"""What a GRPO stage's settings leave open: how verl and vLLM use the machines.

The defaults are those of the published script (recipe/FACTS C) where it has them, else
what is known of MI300X.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from instella.errors import BadUse
from instella.recipe.fields import FieldReader, suggestion
from instella.recipe.settings import setting
from instella.recipe.tree import read_tree

# Arguments of vLLM that the kit knows; verl hands on whatever stands under ``engine_kwargs``,
# and a wrong name is found, if at all, when the accelerators are booked.
VLLM_ARGUMENTS = (
    "attention_backend",
    "block_size",
    "compilation_config",
    "disable_cascade_attn",
    "disable_custom_all_reduce",
    "mm_processor_cache_gb",
    "model_impl",
)
# What verl hands to vLLM from settings of its own; a second value would win without a word.
SET_BY_VERL = (
    "disable_log_stats",
    "distributed_executor_backend",
    "dtype",
    "enable_chunked_prefill",
    "enable_prefix_caching",
    "enable_sleep_mode",
    "enforce_eager",
    "gpu_memory_utilization",
    "hf_overrides",
    "load_format",
    "logprobs_mode",
    "max_model_len",
    "max_num_batched_tokens",
    "max_num_seqs",
    "override_generation_config",
    "quantization",
    "scheduling_policy",
    "seed",
    "skip_tokenizer_init",
    "tensor_parallel_size",
    "trust_remote_code",
    "worker_extension_cls",
)

VLLM: Mapping[str, Any] = {
    # On MI300X vLLM's own all-reduce fails where memory grows in segments (ROCm/aiter#4174).
    "disable_custom_all_reduce": True,
    # As in the published script.
    "disable_cascade_attn": True,
    # Takes head size 80; the AITER backends do not (docs/containers.md).
    "attention_backend": "TRITON_ATTN",
    # The kit's own, which vLLM knows by a plugin (instella/engines/vllm).
    "model_impl": "vllm",
}


@dataclass(frozen=True)
class Options:
    """How the engine runs a stage; none of it is part of an identity."""

    tokens_per_gpu: int = setting("tokens of one forward pass", default=17000, at_least=1)
    rollout_tokens: int = setting("tokens that vLLM computes at once", default=17000, at_least=1)
    rollout_memory: float = setting(
        "share of an accelerator's memory for vLLM", default=0.8, more_than=0.0, at_most=1.0
    )
    enforce_eager: bool = setting("vLLM without graphs", default=True)
    offload_reference: bool = setting("the reference waits in the host's memory", default=True)
    attention: str = setting(
        "attention of the trainer",
        default="flash_attention_2",
        choices=("flash_attention_2", "sdpa"),
    )
    reward_workers: int = setting("processes that grade", default=8, at_least=1)
    keep_checkpoints: int | None = setting(
        "how many checkpoints stay; null: all", default=None, at_least=1
    )
    vllm: dict[str, Any] = setting("further arguments of vLLM", default=None)
    environment: dict[str, str] = setting("further variables", default=None)

    def engine_arguments(self) -> dict[str, Any]:
        """The arguments of vLLM that stand under ``engine_kwargs``.

        Raises:
            BadUse: a name that is not one, or that verl sets from another setting.
        """
        given = self.vllm or {}
        for name in given:
            if name in SET_BY_VERL:
                raise BadUse(
                    f"vllm.{name}: verl sets this from a setting of its own, which this would "
                    "override without a word; leave it out"
                )
            if name not in VLLM_ARGUMENTS:
                raise BadUse(
                    f"vllm.{name}: no argument of vLLM that the kit knows, and verl would not "
                    f"notice; {suggestion(name, VLLM_ARGUMENTS)}"
                )
        return {**VLLM, **given}


def read_options(path: Path | None) -> Options:
    """The options in a YAML file; all defaults without one.

    Raises:
        BadUse: with file and line of the first fault.
    """
    if path is None:
        return Options()
    options: Options = FieldReader(str(path)).read(Options, read_tree(path))
    options.engine_arguments()
    return options
