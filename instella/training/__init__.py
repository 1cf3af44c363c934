"""Training: objectives, optimizer, schedule, order of data, reduction, loop, checkpoints.

``sft_row`` and ``preference_loss`` are offered as plain functions, so that they can be
compared with published numbers.
"""

from instella.data.chat import render_row as sft_row
from instella.training.objectives import preference_loss

__all__ = ["preference_loss", "sft_row"]
