"""Where the published files lie."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECIPE = ROOT / "recipes" / "instella-3b.yaml"
FOLDER = ROOT / "recipes" / "published"
# Public data for comparisons, beside the checkout; tests that need it skip without.
SHARED = ROOT.parent / "shared"
