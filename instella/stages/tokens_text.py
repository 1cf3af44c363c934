"""Documents as one packed stream of token ids for next-token training.

``tokens.npy`` holds whole windows only: the stream is cut behind the last full window of
``sequence_length`` that ends within ``max_tokens``. Documents lie end to end, each closed
by the end of text; a window knows nothing of their borders (recipe/FACTS A, D).
"""

from instella.artifacts.job import Job
from instella.canonical import write_json, write_jsonl, write_npy
from instella.data.contamination import Guard
from instella.data.ledger import Ledger, clip
from instella.data.packing import Spool, draw, pack_text
from instella.data.tokenizer import load
from instella.errors import VerificationError
from instella.recipe.settings import PretrainData


def run(job: Job) -> None:
    """Write ``tokens.npy`` (uint16), ``documents.jsonl`` and ``report.json``."""
    data: PretrainData = job.settings["data"]
    encoder = load(job.inputs["tokenizer"])
    guard = Guard.from_folder(job.inputs["heldout"], job.settings["ngram"])
    ledger = Ledger(data.parts)
    drawn = draw(data.parts, job.inputs, data.seed)
    entries = []
    with Spool(job.scratch / "tokens.part", "uint16") as stream:
        for place in pack_text(drawn, guard, encoder, ledger, stream, data.max_tokens):
            entries.append(place)
            job.report.step(
                min(stream.size, data.max_tokens) if data.max_tokens else len(entries),
                data.max_tokens or len(drawn),
                stream.size,
            )
        ledger.refuse_empty(job.stage)
        kept = whole_windows(stream.size, data, job.stage)
        write_npy(job.output / "tokens.npy", stream.array()[:kept])
        cut = stream.size - kept
    write_jsonl(job.output / "documents.jsonl", clip(entries, kept))
    report = ledger.report(
        drawn=len(drawn),
        sequence_length=data.sequence_length,
        windows=kept // data.sequence_length,
        tokens_in_windows=kept,
        tokens_cut=cut,
    )
    write_json(job.output / "report.json", report)
    job.report.say(f"{kept:,} tokens, {len(entries):,} documents")


def whole_windows(tokens: int, data: PretrainData, stage: str) -> int:
    """Tokens of the whole windows within ``tokens`` and ``data.max_tokens``.

    Raises:
        VerificationError: there is not a single whole window.
    """
    limit = tokens if data.max_tokens is None else min(tokens, data.max_tokens)
    kept = limit // data.sequence_length * data.sequence_length
    if kept == 0:
        raise VerificationError(
            f"{stage}: {limit} tokens are less than one window of {data.sequence_length}; "
            "give the parts more data or shorten sequence_length"
        )
    return kept
