"""Items of TTT-Bench on disk: published Parquet files, and our lines of JSON."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from instella.canonical import read_jsonl
from instella.errors import BadUse
from instella.evaluation.ttt.games import GAMES, Game
from instella.evaluation.ttt.generate import Item
from instella.evaluation.ttt.grade import right_moves
from instella.evaluation.ttt.positions import Position, checked, question, read_question

Named = tuple[Position, str]


def row_of(item: Item) -> dict[str, Any]:
    """The line of an item; ``question`` and ``answer`` are those of a held-out problem."""
    return {
        "key": item.key,
        "game": item.position.game.name,
        "moves": item.position.moves,
        "kind": item.kind,
        "question": question(item.position),
        "answer": ", ".join(item.right),
    }


def game_called(name: str) -> Game:
    """The game of a name; BadUse with the known ones."""
    if name not in GAMES:
        raise BadUse(f"{name}: no game of TTT-Bench; choose one of {', '.join(GAMES)}")
    return GAMES[name]


def read_items(path: Path, game: Game) -> list[Named]:
    """Positions of one game with their gold text.

    Args:
        path: ``.parquet`` in the published form, or ``.jsonl`` as ``row_of`` writes.
        game: which game a Parquet file holds; rows of another game of a JSON file are left out.

    Raises:
        BadUse: the file cannot be read, holds other columns, or a row is no such question.
    """
    try:
        named = list(_parquet(path, game) if path.suffix == ".parquet" else _lines(path, game))
    except OSError as error:
        raise BadUse(f"{path}: {error.strerror or error}: give a readable file") from None
    if not named:
        raise BadUse(f"{path}: holds no item of {game.name}; give another file or game")
    return named


def _parquet(path: Path, game: Game) -> Iterator[Named]:
    # Imported here: the commands that need no Parquet do without it.
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows = pq.read_table(path, columns=["prompt", "reward_model"]).to_pylist()
    except pa.ArrowInvalid as error:
        raise BadUse(f"{path}: no Parquet file of TTT-Bench: {error}") from None
    for number, row in enumerate(rows):
        where = f"{path}: row {number}"
        try:
            text, gold = row["prompt"][0]["content"], row["reward_model"]["ground_truth"]
        except (KeyError, IndexError, TypeError):
            raise BadUse(f"{where}: lacks prompt or ground_truth; give a published file") from None
        yield read_question(game, text, where), gold


def _lines(path: Path, game: Game) -> Iterator[Named]:
    for number, row in enumerate(read_jsonl(path), 1):
        where = f"{path}: line {number}"
        moves, gold = row.get("moves"), row.get("answer")
        if not isinstance(moves, str) or not isinstance(gold, str) or not right_moves(gold):
            raise BadUse(f"{where}: lacks the texts moves and answer; make it with ttt make")
        if row.get("game") == game.name:
            yield checked(game, moves, where), gold
