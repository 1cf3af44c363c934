from pathlib import Path

import numpy as np
import pytest

from instella.canonical import write_npy
from instella.errors import VerificationError
from instella.training.rows import ChatRows, micro_batches, open_tokens


def write(folder: Path, ids: np.ndarray, mask: np.ndarray) -> Path:
    write_npy(folder / "input_ids.npy", ids)
    write_npy(folder / "label_mask.npy", mask)
    return folder


@pytest.fixture
def ids() -> np.ndarray:
    return np.arange(12, dtype=np.uint16).reshape(3, 4)


@pytest.fixture
def mask() -> np.ndarray:
    return np.array([[0, 1, 1, 0], [1, 0, 0, 1], [0, 0, 1, 0]], dtype=bool)


def test_rows_and_labels(tmp_path: Path, ids: np.ndarray, mask: np.ndarray) -> None:
    rows = ChatRows(write(tmp_path, ids, mask))
    # a label on the first token is never scored
    assert rows.labels.tolist() == [2, 1, 1]
    found, labels = rows.take(np.array([2, 0], dtype=np.uint32), 3, 12)
    assert found.tolist() == [[8, 9, 10], [0, 1, 2]]
    assert labels.tolist() == [[False, False, True], [False, True, True]]


def test_a_row_without_labels_is_refused(tmp_path: Path, ids: np.ndarray, mask: np.ndarray) -> None:
    mask[1, 3] = False
    with pytest.raises(VerificationError, match=r"label_mask.npy: row 1 has no label"):
        ChatRows(write(tmp_path, ids, mask))


def test_an_unknown_token_is_refused(tmp_path: Path, ids: np.ndarray, mask: np.ndarray) -> None:
    with pytest.raises(VerificationError, match=r"input_ids.npy: token id 11 is not below .* 11"):
        ChatRows(write(tmp_path, ids, mask)).take(np.arange(3), 4, 11)


def test_shapes_must_agree(tmp_path: Path, ids: np.ndarray, mask: np.ndarray) -> None:
    with pytest.raises(VerificationError, match=r"shape \(2, 4\), but the ids have \(3, 4\)"):
        ChatRows(write(tmp_path, ids, mask[:2]))


def test_other_dtypes_and_pickles_are_refused(tmp_path: Path) -> None:
    write_npy(tmp_path / "a.npy", np.zeros(3, dtype=np.int32))
    with pytest.raises(VerificationError, match="int32 with 1 dimensions: expected uint16 with 1"):
        open_tokens(tmp_path / "a.npy", 1)
    np.save(tmp_path / "b.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(VerificationError, match=r"not a readable \.npy file"):
        open_tokens(tmp_path / "b.npy", 1)
    with pytest.raises(VerificationError, match=r"not a readable \.npy file"):
        open_tokens(tmp_path / "missing.npy", 1)


def test_micro_batches_keep_the_order() -> None:
    parts = micro_batches(np.arange(8), 2)
    assert [part.tolist() for part in parts] == [[0, 1], [2, 3], [4, 5], [6, 7]]
