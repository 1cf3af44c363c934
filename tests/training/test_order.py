import json
from pathlib import Path

import numpy as np
import pytest

from instella.errors import BadUse
from instella.training.order import Cursor, epoch_order


@pytest.mark.parametrize("epoch", [0, 1])
def test_order_equals_the_published_one(reference: Path, epoch: int) -> None:
    expected = np.load(reference / "data_order" / f"world1_drop_epoch{epoch}_global.npy")
    order = epoch_order(37, 6198, epoch)
    assert order.dtype == np.uint32
    assert np.array_equal(order, expected)


def test_order_of_a_thousand_windows(reference: Path) -> None:
    expected = np.load(reference / "data_order" / "thousand_windows_global.npy")
    assert np.array_equal(epoch_order(1000, 6198, 0), expected)


@pytest.mark.parametrize("epoch", [0, 1])
def test_batches_equal_the_published_loader(reference: Path, epoch: int) -> None:
    cases = json.loads((reference / "data_order" / "cases.json").read_text())["cases"]
    case = next(c for c in cases if c["world_size"] == 1 and c["drop_last"] and c["epoch"] == epoch)
    cursor = Cursor(37, 8, 6198, epochs=2)
    for place, expected in enumerate(case["batches_rank_by_rank"][0]):
        found_epoch, rows = cursor.at(epoch * cursor.steps_per_epoch + place)
        assert found_epoch == epoch
        assert rows.tolist() == expected


def test_cursor_drops_the_partial_batch_and_crosses_epochs() -> None:
    cursor = Cursor(10, 4, 7, epochs=3)
    assert (cursor.steps_per_epoch, cursor.total_steps) == (2, 6)
    assert [cursor.at(step)[0] for step in range(6)] == [0, 0, 1, 1, 2, 2]
    assert np.array_equal(cursor.at(3)[1], epoch_order(10, 7, 1)[4:8])


def test_max_steps_stops_early_but_never_adds() -> None:
    assert Cursor(10, 4, 7, epochs=3, max_steps=5).total_steps == 5
    assert Cursor(10, 4, 7, epochs=3, max_steps=50).total_steps == 6


def test_too_little_data_is_refused() -> None:
    with pytest.raises(BadUse, match="3 examples do not fill one batch of 4"):
        Cursor(3, 4, 0)


def test_order_cannot_be_changed_by_a_caller() -> None:
    with pytest.raises(ValueError, match="read-only"):
        epoch_order(37, 6198, 0)[0] = 1


@pytest.mark.parametrize("limits", [{}, {"max_steps": 2}, {"epochs": 3, "max_steps": 7}])
def test_examples_taken_are_those_of_all_updates(limits):
    cursor = Cursor(count=23, global_batch=5, seed=3, **limits)
    seen = np.concatenate([cursor.at(step)[1] for step in range(cursor.total_steps)])
    assert cursor.taken().tolist() == sorted(set(seen.tolist()))
