"""lm-evaluation-harness on a finished run, in its own environment; with ``INSTELLA_SOAK=1``.

What it found, and on which machine, stands in docs/evaluation.md.
"""

import os
import subprocess

import pytest
from run_helpers import Run

from benchmarks.harness_checks import child
from instella.prove.copies import PROJECT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(
        not os.environ.get("INSTELLA_SOAK"), reason="sets up 1.8 GB of packages: INSTELLA_SOAK=1"
    ),
]


def test_both_model_classes_and_models_without_a_network(nano_run: Run) -> None:
    """Log-likelihoods, scores, batch 1 and 64, and what a constant, random or knowing model gets."""
    subprocess.run([PROJECT / "kit", "setup", "harness"], check=True)
    told = child("agreement", nano_run.results / "sft", "recipes/nano.yaml")
    assert told["failures"] == []
    assert (told["tasks"], told["requests"] > 100) == (10, True)
