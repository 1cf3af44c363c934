"""The reward of a response, as verl calls it: 1 for a right final answer, else 0.

Imported by verl's reward workers, in their environment. The grader is the kit's own, so that a
response is worth the same whichever engine sampled it. A verdict that needed the clock counts
as wrong and is told apart in ``timed_out``; none ends the run, since a run on accelerators does
not reproduce its bytes anyway.
"""

import atexit
import threading
from collections.abc import Mapping
from typing import Any

from instella.rewards.extract import last_boxed
from instella.rewards.grade import CORRECT, NO_ANSWER, TIMED_OUT, Grader

# verl calls from several threads of a worker, and a grader has one process to talk to.
_LOCK = threading.Lock()
_GRADER = Grader()
atexit.register(_GRADER.close)


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any] | None = None,
    **_: Any,
) -> dict[str, float]:
    """Grade one response.

    Args:
        data_source: name of the problem's source; every source is graded alike.
        solution_str: the response as text, without special tokens.
        ground_truth: the gold answer.
        extra_info: not read.

    Returns:
        ``score``, the reward, and ``acc``, ``no_answer``, ``refused`` and ``timed_out``, each
        0 or 1, which verl logs.
    """
    with _LOCK:
        verdict = _GRADER.verdict(ground_truth, last_boxed(solution_str))
    score = float(verdict.label == CORRECT)
    return {
        "score": score,
        "acc": score,
        "no_answer": float(verdict.label == NO_ANSWER),
        "refused": float(verdict.refused),
        "timed_out": float(verdict.label == TIMED_OUT),
    }
