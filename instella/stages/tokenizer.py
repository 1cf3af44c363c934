"""The tokenizer: learned from the recipe's texts, or taken from a published file.

Texts are read from the part that has given the fewest characters so far, so the parts
weigh the same; documents that hold a held-out item are left out. After the texts comes
one rendered chat for each ``CHARACTERS_PER_CHAT`` characters of text, with every role tag
and the prompt suffix, so that their words become whole tokens.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from pathlib import Path, PurePosixPath
from typing import Any

from instella.artifacts.job import Job
from instella.canonical import write_json, write_jsonl
from instella.data.chat import CHAT_TEMPLATE, prompt_ids, role_tag, with_suffix
from instella.data.contamination import Guard
from instella.data.documents import ROLES
from instella.data.ledger import Ledger, entry
from instella.data.packing import documents_of, plain_text, split_options
from instella.data.tokenizer import load, train_bpe, write_folder
from instella.errors import BadUse, VerificationError
from instella.recipe.settings import Tokenizer

# A word of the chat is then about one in 200 words of the whole: more frequent than the
# pairs at which a vocabulary of 512 entries or more ends (tests/data_tokens).
CHARACTERS_PER_CHAT = 1000
SMALLEST_CHATS = 100


def run(job: Job) -> None:
    """Write the three files of a tokenizer folder, ``documents.jsonl``, ``report.json``."""
    settings: Tokenizer = job.settings["tokenizer"]
    suffix = job.settings["prompt_suffix"]
    ledger = Ledger(settings.parts)
    entries: list[dict[str, Any]] = []
    if settings.kind == "file":
        data = published(settings, job.inputs)
    else:
        guard = Guard.from_folder(job.inputs["heldout"], job.settings["ngram"])
        texts = learning_texts(settings, job.inputs, guard, ledger, entries)
        data = train_bpe(with_chats(texts, suffix), settings)
    write_folder(job.output, data, settings.eos_id, settings.pad_id, CHAT_TEMPLATE)
    write_jsonl(job.output / "documents.jsonl", entries)
    encoder = load(job.output)
    report = ledger.report(
        kind=settings.kind,
        entries=encoder.vocab_size,
        entries_asked=settings.vocab_size,
        tokens_of_empty_problem=len(prompt_ids(with_suffix("", suffix), encoder)),
    )
    write_json(job.output / "report.json", report)
    job.report.say(f"{encoder.vocab_size:,} entries")


def published(settings: Tokenizer, inputs: Mapping[str, Path]) -> bytes:
    """The bytes of the ``tokenizer.json`` that a source holds.

    Raises:
        BadUse: source or member is missing in the recipe, or leaves the source's folder.
        VerificationError: the source has no such file.
    """
    if settings.source is None or settings.member is None:
        raise BadUse("tokenizer: kind file needs source and member")
    member = PurePosixPath(settings.member)
    path = inputs[f"source_{settings.source}"] / member
    if member.is_absolute() or ".." in member.parts:
        raise BadUse(f"tokenizer: member {settings.member!r} leaves source {settings.source}")
    if not path.is_file():
        raise VerificationError(
            f"source {settings.source}: no file {settings.member!r}; correct tokenizer.member"
        )
    return path.read_bytes()


def learning_texts(
    settings: Tokenizer,
    inputs: Mapping[str, Path],
    guard: Guard,
    ledger: Ledger,
    entries: list[dict[str, Any]],
) -> Iterator[str]:
    """Texts of all parts in turn, until ``max_characters`` have been given.

    Args:
        settings: parts and limit.
        inputs: role ``source_NAME`` to the folder of that source.
        guard: over the held-out items.
        ledger: counts what is read.
        entries: gets the ledger's entry of each text.

    Raises:
        BadUse: there are no parts.
    """
    if not settings.parts:
        raise BadUse("tokenizer: kind bpe needs parts to learn from")
    limit = settings.max_characters
    given = dict.fromkeys(range(len(settings.parts)), 0)
    streams = {
        number: documents_of(split_options(part)[0], inputs)
        for number, part in enumerate(settings.parts)
    }
    while streams and (limit is None or sum(given.values()) < limit):
        part = min(streams, key=lambda number: (given[number], number))
        document = next(streams[part], None)
        if document is None:
            del streams[part]
            continue
        held = guard.holds(document)
        if held is not None:
            ledger.contaminated(part, held)
            continue
        text = plain_text(document)
        ledger.kept(part, characters=len(text))
        entries.append(entry(settings.parts[part].source, document.key, text))
        given[part] += len(text)
        yield text


def with_chats(texts: Iterable[str], suffix: str) -> Iterator[str]:
    """The texts, then the rendered chat as often as their length asks for."""
    characters = 0
    for text in texts:
        characters += len(text)
        yield text
    if characters:
        yield from repeat(chat_text(suffix), chats(characters))


def chats(characters: int) -> int:
    """Rendered chats that follow so many characters of text."""
    return max(SMALLEST_CHATS, characters // CHARACTERS_PER_CHAT)


def chat_text(suffix: str) -> str:
    """One rendered chat: every role tag and the prompt suffix."""
    return "".join(f"{role_tag(role)}{with_suffix('', suffix)}\n" for role in ROLES)
