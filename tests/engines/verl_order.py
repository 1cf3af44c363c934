"""Runs in verl's environment: the replay buffer over a real TransferQueue.

    .venvs/verl/bin/python -P verl_order.py

Prints as its last line what a step holds whose responses came in another order, and what a step
says that lacks one.
"""

import json
from typing import Any

import ray
import torch
import transfer_queue as tq
from omegaconf import OmegaConf
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from instella.engines.verl.inside import compose_words
from instella.engines.verl.order import OrderedReplayBuffer

SAMPLES = 2
# Row of the training file and response, as they are done.
DONE = [(1, [9, 9]), (0, [5]), (2, [7, 1, 2]), (0, [4, 6]), (2, [7, 1]), (1, [3])]
NAMES = {0: "zz", 1: "aa", 2: "mm"}


def put(rows: list[tuple[int, list[int]]]) -> None:
    """What the agent loop writes for one step."""
    for name in NAMES.values():
        tag = {"is_prompt": True, "status": "finished", "global_steps": 1}
        tq.kv_put(key=name, partition_id="train", tag=tag)
    for number, (index, response) in enumerate(rows):
        field = {"index": index, "responses": torch.tensor(response), "uid": NAMES[index]}
        tq.kv_batch_put(
            keys=[f"{NAMES[index]}_{number}_0"],
            fields=list_of_dict_to_tensordict([field]),
            tags=[{"status": "success", "seq_len": len(response), "global_steps": 1}],
            partition_id="train",
        )


def steps(buffer: OrderedReplayBuffer) -> dict[str, Any]:
    """One step that is complete, and one that is not."""
    put(DONE)
    batch, _ = buffer.sample(global_steps=1, partition_id="train", batch_size=len(NAMES))
    rows = tq.kv_batch_get(
        keys=batch.keys, partition_id="train", select_fields=["index", "responses"]
    )
    found = [
        [int(index), response.tolist()]
        for index, response in zip(rows["index"], rows["responses"].unbind(), strict=True)
    ]
    lengths = [tag["seq_len"] for tag in batch.tags]
    tq.kv_clear(keys=batch.keys, partition_id="train")
    put(DONE[:-1])
    lacking = "accepted"
    try:
        buffer.sample(global_steps=1, partition_id="train", batch_size=len(NAMES))
    except RuntimeError as error:
        lacking = str(error)
    return {"rows": found, "lengths": lengths, "lacking": lacking}


def main() -> None:
    ray.init(num_cpus=4, include_dashboard=False)
    queue = compose_words(["actor_rollout_ref.rollout.name=vllm"]).transfer_queue
    OmegaConf.update(queue, "backend.SimpleStorage.num_data_storage_units", 1)
    queue.enable = True
    tq.init(queue)
    buffer = OrderedReplayBuffer(
        trainer_mode="sync",
        trainer_config=OmegaConf.create({}),
        max_off_policy_threshold=8,
        max_off_policy_strategy="drop",
        sampler_kwargs=OmegaConf.create({"samples": SAMPLES}),
        poll_interval=0.1,
    )
    try:
        print("\n" + json.dumps(steps(buffer)))
    finally:
        tq.close()
        ray.shutdown()


if __name__ == "__main__":
    main()
