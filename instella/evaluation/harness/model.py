"""The harness's model interface over our network.

Requests become ids by the harness's own rules (``TemplateLM``), so that its own model class
and this one score the same ids. The rest is ``evaluation.packed`` and ``rollout.generate``:
in portable-x86 a result depends on its own request and on nothing that shares its batch.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lm_eval.api.model import TemplateLM
from lm_eval.models.utils import handle_stop_sequences, normalize_gen_kwargs
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from instella.canonical import json_bytes
from instella.data.tokenizer import Encoder
from instella.errors import BadUse
from instella.evaluation.packed import Request, likelihoods
from instella.network.network import Instella
from instella.rollout.generate import generate

DEFAULT_NEW_TOKENS = 256
# Prompts are padded to a multiple of it, which depends on the prompt alone.
PROMPT_STEP = 32
_SAMPLING = {"do_sample", "temperature", "top_p"}


@dataclass(frozen=True)
class _Sampling:
    """How requests are answered that may share a call of ``generate``."""

    width: int
    new_tokens: int
    temperature: float
    top_p: float


class InstellaLM(TemplateLM):  # type: ignore[misc]
    """Our network for the harness.

    Args:
        network: in evaluation.
        encoder: its tokenizer. No begin of text is added, as the tokenizer's files say; an
            empty context becomes the end of text.
        batch: requests at once.
        seed: of sampling, where a task asks for it.
    """

    def __init__(self, network: Instella, encoder: Encoder, batch: int, seed: int = 0) -> None:
        super().__init__()
        self._network, self._encoder = network, encoder
        self._batch, self._seed = batch, seed
        self._longest = network.settings.max_position_embeddings
        self._encoded: dict[str, list[int]] = {}

    @property
    def eot_token_id(self) -> int:
        """End of text, also its begin."""
        return self._encoder.eos_id

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **_: Any
    ) -> list[int]:
        """Ids of a text; the tokenizer adds none of its own, whatever is asked for."""
        return self._encoded.get(string) or self._encoder.encode(string)

    def loglikelihood(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        """By the harness's rule; each text that it asks for is encoded once, and all together."""
        pairs = [request.args for request in requests]
        texts = list(dict.fromkeys(
            text for context, rest in pairs for text in (context.rstrip(), context + rest)
        ))  # fmt: skip
        self._encoded = dict(zip(texts, self._encoder.encode_batch(texts), strict=True))
        try:
            found: list[tuple[float, bool]] = super().loglikelihood(requests, disable_tqdm)
        finally:
            self._encoded = {}
        return found

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], **_: Any
    ) -> list[tuple[float, bool]]:
        """Sum of the log-probabilities of each continuation, and whether it is greedy."""
        found = likelihoods(self._network, [self._cut(*ids) for _, *ids in requests], self._batch)
        return [(float(one.logprobs.sum()), one.greedy) for one in found]

    def _cut(self, context: list[int], continuation: list[int]) -> Request:
        """The last ids that the network reads, as the harness's own class cuts them."""
        if not continuation or len(continuation) > self._longest:
            raise BadUse(
                f"harness: a continuation of {len(continuation)} tokens; it needs one, and the "
                f"network reads {self._longest}"
            )
        room = self._longest + 1 - len(continuation)
        return Request(tuple(context[-room:]), tuple(continuation))

    def loglikelihood_rolling(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[float]:
        """Log-likelihood of whole texts, in windows if they are long, by the harness's rule."""
        owners, windows = [], []
        for number, request in enumerate(requests):
            (text,) = request.args
            for window in get_rolling_token_windows(
                token_list=self.tok_encode(text),
                prefix_token=self.prefix_token_id,
                max_seq_len=self._longest,
                context_len=1,
            ):
                owners.append(number)
                windows.append((None, *make_disjoint_window(window)))
        totals = [0.0] * len(requests)
        for owner, (value, _) in zip(owners, self._loglikelihood_tokens(windows), strict=True):
            totals[owner] += value
        return totals

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Answers, each cut before its first stop text."""
        calls: dict[_Sampling, list[int]] = defaultdict(list)
        prompts, stops = [], []
        for number, request in enumerate(requests):
            context, asked = request.args
            sampling, prompt, until = self._sampling(context, asked)
            prompts.append(prompt)
            stops.append(until)
            calls[sampling].append(number)
        streams = _streams(requests, self._seed)
        answers = [""] * len(requests)
        for sampling, numbers in calls.items():
            groups = generate(
                self._network,
                [prompts[number] for number in numbers],
                samples=1,
                max_new_tokens=sampling.new_tokens,
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                eos_id=self._encoder.eos_id,
                vocabulary=self._encoder.vocab_size,
                max_prompt_tokens=sampling.width,
                stream=[streams[number] for number in numbers],
                rows_per_batch=self._batch,
            )
            for number, (response,) in zip(numbers, groups, strict=True):
                special = (self._encoder.eos_id, self._encoder.pad_id)
                text = self._encoder.decode(i for i in response.ids if i not in special)
                answers[number] = cut_before(text, stops[number])
        return answers

    def _sampling(
        self, context: str, asked: Mapping[str, Any]
    ) -> tuple[_Sampling, list[int], list[str]]:
        options = normalize_gen_kwargs(dict(asked), DEFAULT_NEW_TOKENS)
        end = self._encoder.decode([self._encoder.eos_id])
        until = handle_stop_sequences(options.pop("until", None), eos=end)
        new = options.pop("max_gen_toks")
        unknown = sorted(set(options) - _SAMPLING)
        if unknown or not 0 < new < self._longest:
            raise BadUse(
                f"harness: generation with {', '.join(unknown) or f'max_gen_toks {new}'}: the "
                f"model knows {', '.join(sorted(_SAMPLING))}, and reads {self._longest} tokens"
            )
        prompt = self.tok_encode(context)[-(self._longest - new) :] or [self.prefix_token_id]
        width = min(-(-len(prompt) // PROMPT_STEP) * PROMPT_STEP, self._longest - new)
        greedy = not options.get("do_sample", False)
        temperature = 0.0 if greedy else float(options.get("temperature", 1.0))
        top_p = 1.0 if greedy else float(options.get("top_p", 1.0))
        return _Sampling(width, new, temperature, top_p), prompt, until


def _streams(requests: Sequence[Any], seed: int) -> list[list[str | int]]:
    """Names of random numbers: the request, and which of its repetitions it is."""
    seen: dict[bytes, int] = defaultdict(int)
    streams: list[list[str | int]] = []
    for request in requests:
        context, asked = request.args
        name = json_bytes([request.task_name, request.doc_id, context, asked])
        streams.append(["harness", seed, name.decode("utf-8"), seen[name]])
        seen[name] += 1
    return streams


def cut_before(text: str, stops: Sequence[str]) -> str:
    """The text before the first of the stops that it holds; an empty stop is none."""
    places = [text.find(stop) for stop in stops if stop]
    return text[: min([place for place in places if place >= 0], default=len(text))]
