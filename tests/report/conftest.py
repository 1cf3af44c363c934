"""A run folder written by hand: every text that a page shows is chosen by the test."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
