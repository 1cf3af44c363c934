from pathlib import Path

import pytest

REFERENCE = Path(__file__).resolve().parents[3] / "shared" / "data" / "reference"


@pytest.fixture(scope="session")
def reference() -> Path:
    """Numbers that the published code gave."""
    if not REFERENCE.is_dir():
        pytest.skip(f"the reference numbers are not at {REFERENCE}")
    return REFERENCE
