"""What ``instella evaluation harness`` starts: reads what to do on stdin, writes records.

The numerics class has to be set before torch is imported, so everything else is imported
after it.
"""

import json
import sys
from pathlib import Path
from typing import Any

from instella import numerics
from instella.errors import ERROR_PREFIX, KitError


def main() -> int:
    """Run the tasks; 0, or an error's exit code."""
    asked = json.load(sys.stdin)
    try:
        numerics.apply_environment(asked["numerics"])
        evaluate(asked)
    except KitError as error:
        print(f"{ERROR_PREFIX}{error}", file=sys.stderr)
        return error.exit_code
    return 0


def evaluate(asked: dict[str, Any]) -> None:
    """Write ``NAME.jsonl`` for each set, ``scores.json`` and ``harness.json`` in ``output``."""
    import logging
    from importlib.metadata import version

    from lm_eval import evaluator

    from instella.canonical import write_json
    from instella.data.tokenizer import load
    from instella.evaluation.harness.model import InstellaLM
    from instella.evaluation.harness.rows import record_of, rows_of
    from instella.evaluation.harness.tasks import task_of
    from instella.evaluation.records import read_items, write_scores
    from instella.network.folder import load_folder
    from instella.network.known_answer import check_network

    # It warns of what is meant, such as data that are no set of the hub.
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    checkpoint, output = Path(asked["checkpoint"]), Path(asked["output"])
    tasks = {}
    for name, given in asked["sets"].items():
        items = read_items(Path(asked["heldout"]), name)
        rows = rows_of(given["kind"], items, asked["prompt_suffix"])
        tasks[name] = task_of(name, given["kind"], rows, given["max_new_tokens"])
    network = load_folder(checkpoint, asked["numerics"]).float().eval()
    numerics.assert_active(asked["numerics"])
    check_network(network, network.settings.max_position_embeddings)
    model = InstellaLM(network, load(checkpoint), asked["batch"], asked["seed"])
    results = evaluator.evaluate(model, {"tasks": tasks}, bootstrap_iters=0, log_samples=True)
    records = {
        name: [record_of(sample) for sample in samples]
        for name, samples in results["samples"].items()
    }
    write_scores(output, records, asked["bootstrap"], asked["seed"])
    write_json(output / "harness.json", {"harness": f"lm-eval {version('lm-eval')}", "tasks": {
        name: {key: value for key, value in results["results"][name].items()
               if isinstance(value, (int, float)) and not isinstance(value, bool)}
        for name in tasks
    }})  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
