"""Runs in vLLM's environment: ``python -P -m instella.engines.vllm.inside``.

Reads one JSON object from standard input: ``folders``, checkpoints of one network that are
loaded one after another into the same engine; ``prompts``, token ids; ``max_new_tokens``, ``end``
and ``length``, the longest row; for answers that are not greedy ``sampling``: ``temperature``,
``top_p``, ``vocabulary`` and ``seeds``, one a prompt. Writes one as the last line of its output:
for each folder and prompt ``ids`` and their ``logprobs``.
"""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any


def generate(request: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Answers of each checkpoint to all prompts."""
    from vllm import LLM, SamplingParams, TokensPrompt

    chosen = [
        SamplingParams(
            max_tokens=request["max_new_tokens"], logprobs=0, detokenize=False,
            stop_token_ids=[request["end"]], ignore_eos=True, **words,
        )
        for words in _sampling(request)
    ]  # fmt: skip
    prompts = [TokensPrompt(prompt_token_ids=ids) for ids in request["prompts"]]
    answers = []
    with tempfile.TemporaryDirectory(prefix="vllm-") as place:
        # One folder whose weights change, as a trainer would change them between steps.
        folder = Path(place, "model")
        shutil.copytree(request["folders"][0], folder, copy_function=shutil.copyfile)
        engine = LLM(
            str(folder), dtype="float32", max_model_len=request["length"], enforce_eager=True,
            skip_tokenizer_init=True, enable_prefix_caching=False, max_num_seqs=256, seed=0,
        )  # fmt: skip
        for number, source in enumerate(request["folders"]):
            if number:
                shutil.copyfile(Path(source, "model.safetensors"), folder / "model.safetensors")
                engine.collective_rpc("reload_weights")
            found = engine.generate(prompts, chosen, use_tqdm=False)
            answers.append([_answer(item.outputs[0]) for item in found])
    return answers


def _sampling(request: dict[str, Any]) -> list[dict[str, Any]]:
    """How the answer to each prompt is chosen, in vLLM's words."""
    wanted = request.get("sampling")
    if wanted is None:
        return [{"temperature": 0.0}] * len(request["prompts"])
    common = {
        "temperature": wanted["temperature"],
        "top_p": wanted["top_p"],
        "allowed_token_ids": list(range(wanted["vocabulary"])),
    }
    return [{**common, "seed": seed} for seed in wanted["seeds"]]


def _answer(output: Any) -> dict[str, Any]:
    ids = list(output.token_ids)
    scores = [row[number].logprob for number, row in zip(ids, output.logprobs, strict=True)]
    return {"ids": ids, "logprobs": scores}


def main() -> None:
    """Serve one request."""
    # An engine in a process of its own writes to standard output after the reply too.
    own = os.dup(1)
    os.dup2(2, 1)
    reply = generate(json.load(sys.stdin))
    with open(own, "w", encoding="utf-8") as file:
        file.write(json.dumps(reply) + "\n")


if __name__ == "__main__":
    main()
