"""Sampled answers by vLLM in the place of ``rollout.generate``: same prompts, settings and names.

The tokens are not those of the kit's generator, whose random numbers vLLM does not take: an answer
has a seed of its own, named as the kit's stream is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from instella.data.tokenizer import Encoder
from instella.engines.vllm.ask import Answer, Question, Sampling, ask
from instella.recipe.settings import HeldOutSet
from instella.rollout.generate import Parts, Response
from instella.rollout.streams import seed_of

ENVIRONMENT = "vllm"


@dataclass(frozen=True)
class VllmSampler:
    """Answers problems; as ``evaluation.measures.Sampler`` asks.

    Attributes:
        folder: the checkpoint.
        encoder: its tokenizer.
        python: of an environment with vLLM.
    """

    folder: Path
    encoder: Encoder
    python: Path

    def __call__(
        self, prompts: Sequence[Sequence[int]], stream: Sequence[Parts], chosen: HeldOutSet
    ) -> list[list[Response]]:
        """For each prompt its responses, in the order of the samples.

        Raises:
            KitError: vLLM fails, with the last line that it wrote.
        """
        if not prompts:
            return []
        (answers,) = ask(self.question(prompts, stream, chosen), self.python)
        responses = [self._response(answer) for answer in answers]
        size = chosen.samples
        return [responses[start : start + size] for start in range(0, len(responses), size)]

    def question(
        self, prompts: Sequence[Sequence[int]], stream: Sequence[Parts], chosen: HeldOutSet
    ) -> Question:
        """One request an answer; those to a prompt stand beside each other."""
        samples = range(chosen.samples)
        seeds = [seed_of([*parts, sample]) for parts in stream for sample in samples]
        sampling = Sampling(chosen.temperature, chosen.top_p, self.encoder.vocab_size, seeds)
        return Question(
            [self.folder],
            [ids for ids in prompts for _ in samples],
            chosen.max_new_tokens,
            self.encoder.eos_id,
            sampling=sampling,
            seconds=None,
        )

    def _response(self, answer: Answer) -> Response:
        finished = answer.ids[-1] == self.encoder.eos_id
        return Response(answer.ids, np.array(answer.logprobs, dtype=np.float32), finished)
