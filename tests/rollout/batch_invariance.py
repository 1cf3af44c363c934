"""Run in a pinned process: prints whether responses depend on the batch,."""

import json
import sys

from rollout_helpers import network, options, prompts

from instella.rollout.generate import generate


def flat(groups):
    return [[(r.ids, r.logprobs.tobytes(), r.finished) for r in group] for group in groups]


def main() -> None:
    model, texts = network("portable-x86"), prompts(12)
    names = [["test", 1, f"p{number}"] for number in range(12)]

    def sample(chosen, **changes):
        return flat(
            generate(
                model,
                [texts[number] for number in chosen],
                stream=[names[number] for number in chosen],
                **options(**changes),
            )
        )

    every = list(range(12))
    mixed = every[5:] + every[:5][::-1]
    whole = sample(every)
    nucleus = sample(every, top_p=0.8, temperature=0.6)
    found = {f"rows_{rows}": sample(every, rows_per_batch=rows) == whole for rows in (1, 7, 64)}
    shuffled = sample(mixed, rows_per_batch=10)
    found["shuffled"] = all(shuffled[mixed.index(number)] == whole[number] for number in every)
    found["alone"] = all(sample([number]) == [whole[number]] for number in (0, 9))
    found["fewer_samples"] = [group[:1] for group in whole] == sample(every, samples=1)
    found["nucleus"] = sample(mixed, top_p=0.8, temperature=0.6, rows_per_batch=7) == [
        nucleus[number] for number in mixed
    ]
    found["differ"] = len({response for group in whole for response in group}) > 30
    json.dump(found, sys.stdout)


main()
