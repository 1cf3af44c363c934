"""A rollout engine of verl on CPUs: one answer at a time, the same bits in every run.

Imported by verl in every process; answers to the name ``vllm``, so that a production
configuration runs with its own ``rollout.name``. A server is one actor of Ray with the kit's
network for verl; each rank of the trainer hands it the weights after an update.
"""

import asyncio
import concurrent.futures
import hashlib
import os
from typing import Any

import ray
import torch
import verl.workers.rollout.base as rollouts
import verl.workers.rollout.replica as replicas
from torch import Tensor
from transformers import AutoModelForCausalLM

ANSWERS_TO = "vllm"
PREFIX = "instella_cpu_rollout_"


class Server:
    """One replica.

    Args:
        config: verl's ``RolloutConfig``.
        model_config: verl's ``HFModelConfig``.
        replica: number of this one.
    """

    def __init__(self, config: Any, model_config: Any, replica: int) -> None:
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        self.config, self.replica = config, replica
        self.end = model_config.tokenizer.eos_token_id
        with torch.device("meta"):
            self.model = AutoModelForCausalLM.from_config(model_config.hf_config)
        self.dtype = getattr(torch, config.dtype)
        self.received: dict[str, Tensor] = {}
        self.tickets: dict[str, int] = {}
        self.is_loaded = False
        self.steps: int | None = None
        # Requests come at once and are answered one after another.
        self.pool = concurrent.futures.ThreadPoolExecutor(1)

    async def load_weights(self, named: list[tuple[str, Tensor]], last: bool, steps: Any) -> None:
        """Take a part of the weights; with the last one they come into use.

        Raises:
            RuntimeError: they are not those of the model.
        """
        self.received.update(named)
        if last:
            weights = {name: tensor.to(self.dtype) for name, tensor in self.received.items()}
            self.model.load_state_dict(weights, assign=True)
            self.model.eval()
            self.received, self.tickets = {}, {}
            self.is_loaded, self.steps = True, steps

    async def ticket(self, request: str) -> int:
        """How often this request was made since the last weights."""
        number = self.tickets[request] = self.tickets.get(request, -1) + 1
        return number

    async def generate(
        self, prompt_ids: Any, sampling_params: dict[str, Any], request_id: str, **_: Any
    ) -> Any:
        """Answer one prompt; as verl's servers do."""
        from verl.utils import normalize_token_ids

        if not self.is_loaded:
            raise RuntimeError("asked for an answer before any weights came")
        prompt = [int(number) for number in normalize_token_ids(prompt_ids)]
        wanted = sorted(sampling_params.items(), key=str)
        request = repr((self.config.seed, self.steps, prompt, wanted))
        # verl's request ids are random. The samples of a prompt differ by how often it was
        # asked before, counted in one place: so the same answers come whichever server gives
        # them, in whatever order, and sorting makes equal batches (``order``).
        if self.replica == 0:
            number = await self.ticket(request)
        else:
            number = await ray.get_actor(f"{PREFIX}0").ticket.remote(request)
        digest = hashlib.sha256(f"{request} {number}".encode()).digest()
        seed = int.from_bytes(digest[:7], "big")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.pool, self._answer, prompt, sampling_params, seed)

    @torch.no_grad()
    def _answer(self, prompt: list[int], wanted: dict[str, Any], seed: int) -> Any:
        config = self.config
        if len(prompt) >= config.max_model_len:
            raise ValueError(f"a prompt of {len(prompt)} tokens, max_model_len is less")
        limit = min(config.response_length, config.max_model_len - len(prompt))
        generator = torch.Generator().manual_seed(seed)
        ids, cache = torch.tensor([prompt]), None
        answer: list[int] = []
        logprobs: list[float] = []
        while len(answer) < limit and self.end not in answer[-1:]:
            made = self.model(input_ids=ids, past_key_values=cache, use_cache=True)
            cache = made.past_key_values
            chosen, score = _choose(made.logits[0, -1].float(), wanted, generator)
            answer.append(chosen)
            logprobs.append(score)
            ids = torch.tensor([[chosen]])
        return replicas.TokenOutput(
            token_ids=answer,
            log_probs=logprobs if wanted.get("logprobs") else None,
            stop_reason="completed",
            num_preempted=0,
            extra_fields={"global_steps": self.steps},
        )

    async def set_global_steps(self, global_steps: int) -> None:
        """As verl calls it."""
        self.steps = global_steps

    async def abort_all_requests(self, reject_request: bool = False) -> dict[str, Any]:
        """Nothing is cut off: verl's synchronous trainer asks when nothing runs."""
        return {"aborted_count": 0, "request_ids": []}

    async def idle(self, *_: Any, **__: Any) -> None:
        """What has no meaning here."""

    ready = wake_up = sleep = clear_kv_cache = release_kv_cache = resume_kv_cache = idle
    resume_generation = start_profile = stop_profile = wait_for_requests_to_drain = idle


def _choose(
    logits: Tensor, wanted: dict[str, Any], generator: torch.Generator
) -> tuple[int, float]:
    """One token of ``logits [V]`` and its log-probability, after temperature and nucleus."""
    temperature, nucleus = wanted.get("temperature", 1.0), wanted.get("top_p", 1.0)
    if temperature == 0:
        chosen = int(logits.argmax())
        return chosen, float(torch.log_softmax(logits, -1)[chosen])
    if wanted.get("top_k", -1) > 0:
        raise ValueError("top_k is not part of a recipe's settings")
    scores = torch.log_softmax(logits / temperature, -1)
    if nucleus < 1:
        ordered, places = scores.exp().sort(descending=True, stable=True)
        outside = places[(ordered.cumsum(-1) - ordered) >= nucleus]
        scores = torch.log_softmax(scores.index_fill(0, outside, -torch.inf), -1)
    chosen = int(torch.multinomial(scores.exp(), 1, generator=generator))
    return chosen, float(scores[chosen])


class Adapter(rollouts.BaseRollout):  # type: ignore[misc]
    """Lives in a worker of the trainer: hands the weights to the replica's server."""

    def __init__(
        self, config: Any, model_config: Any, device_mesh: Any, *rest: Any,
        replica_rank: int = -1, **named: Any,
    ) -> None:  # fmt: skip
        super().__init__(config, model_config, device_mesh)
        world = self.config.tensor_model_parallel_size * self.config.data_parallel_size
        rank = int(os.environ["RANK"])
        self.replica_rank = rank // world if replica_rank == -1 else replica_rank
        self.is_leader_rank, self.sleep_level = rank % world == 0, 1

    async def resume(self, tags: list[str]) -> None:
        """Weights and cache stay where they are."""

    async def release(self) -> None:
        """Weights and cache stay where they are."""

    @torch.no_grad()
    async def update_weights(
        self, weights: Any, global_steps: Any = None, wire_format: str = "named_tensors",
        **named: Any,
    ) -> None:  # fmt: skip
        """Send all weights. Every rank walks through them, since gathering is collective.

        Raises:
            ValueError: weights in another form than whole tensors.
        """
        from verl.workers.rollout.utils import ensure_async_iterator

        if wire_format != "named_tensors" or named.get("peft_config") is not None:
            raise ValueError(f"weights in form {wire_format}: only whole tensors are taken")
        limit = self.config.checkpoint_engine.update_weights_bucket_megabytes << 20
        bucket: list[tuple[str, Tensor]] = []
        size = 0
        async for name, tensor in ensure_async_iterator(weights):
            if not self.is_leader_rank:
                continue
            bucket.append((name, tensor.detach().to("cpu", copy=True)))
            size += tensor.nbytes
            if size >= limit:
                await self._server().load_weights.remote(bucket, False, None)
                bucket, size = [], 0
        if self.is_leader_rank:
            await self._server().load_weights.remote(bucket, True, global_steps)

    def _server(self) -> Any:
        return ray.get_actor(f"{PREFIX}{self.replica_rank}")


class Replica(replicas.RolloutReplica):  # type: ignore[misc]
    """Starts one server."""

    async def launch_servers(self) -> None:
        """Start it as a named actor that books no CPU: verl counts accelerators only."""
        from verl.utils.config import omega_conf_to_dataclass
        from verl.workers.config import HFModelConfig

        model = self.model_config
        if not isinstance(model, HFModelConfig):
            model = omega_conf_to_dataclass(model, dataclass_type=HFModelConfig)
        name = f"{PREFIX}{self.replica_rank}"
        options = {"name": name, "num_cpus": 0, "max_concurrency": self.max_concurrency}
        server = ray.remote(Server).options(**options).remote(self.config, model, self.replica_rank)
        await server.ready.remote()
        self.servers, self._server_handle, self._server_address = [server], server, name


rollouts._ROLLOUT_REGISTRY[(ANSWERS_TO, "async")] = f"{__name__}.Adapter"
replicas.RolloutReplicaRegistry.register(ANSWERS_TO, lambda: Replica)
