"""Token files as training reads them: memory-mapped, checked, and cut to what is needed."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from instella.errors import VerificationError


def open_tokens(path: Path, dimensions: int, dtype: type = np.uint16) -> np.ndarray:
    """A ``.npy`` file without reading it into memory.

    Raises:
        VerificationError: missing, or another dtype or number of dimensions.
    """
    try:
        array: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise VerificationError(f"{path}: not a readable .npy file: {error}") from None
    if array.dtype != dtype or array.ndim != dimensions:
        raise VerificationError(
            f"{path}: {array.dtype} with {array.ndim} dimensions: expected "
            f"{np.dtype(dtype)} with {dimensions}"
        )
    return array


class ChatRows:
    """Rows of ids with their labels: ``PREFIXinput_ids.npy``, ``PREFIXlabel_mask.npy``.

    Attributes:
        ids: uint16 [rows, T].
        mask: bool [rows, T], true where a token is a label.
        labels: int64 [rows], labels after the first token.

    Raises:
        VerificationError: files that do not fit together, or a row without a label.
    """

    def __init__(self, folder: Path, prefix: str = "") -> None:
        ids_path = folder / f"{prefix}input_ids.npy"
        mask_path = folder / f"{prefix}label_mask.npy"
        self.ids = open_tokens(ids_path, 2)
        self.mask = open_tokens(mask_path, 2, np.bool_)
        self.path = ids_path
        if self.ids.shape != self.mask.shape:
            raise VerificationError(
                f"{mask_path}: shape {self.mask.shape}, but the ids have {self.ids.shape}"
            )
        self.labels = np.count_nonzero(self.mask[:, 1:], axis=1)
        empty = np.flatnonzero(self.labels == 0)
        if empty.size:
            raise VerificationError(
                f"{mask_path}: row {int(empty[0])} has no label after its first token: drop it "
                "when the rows are made"
            )

    def take(self, rows: np.ndarray, columns: int, vocab_size: int) -> tuple[Tensor, Tensor]:
        """Ids, int64, and labels, bool, of some rows, [rows, columns] each."""
        ids = self.ids[rows, :columns]
        return as_ids(ids, vocab_size, self.path), torch.from_numpy(self.mask[rows, :columns])


def as_ids(ids: np.ndarray, vocab_size: int, path: Path) -> Tensor:
    """Token ids as int64.

    Raises:
        VerificationError: an id that the network has no row for.
    """
    highest = int(ids.max())
    if highest >= vocab_size:
        raise VerificationError(
            f"{path}: token id {highest} is not below the network's vocab_size {vocab_size}: "
            "the tokens were made for another model"
        )
    return torch.from_numpy(ids.astype(np.int64))


def micro_batches(examples: np.ndarray, size: int) -> list[np.ndarray]:
    """The examples of a global batch in rows of ``size``."""
    return list(examples.reshape(-1, size))
