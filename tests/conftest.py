"""All tests run in the numerics class of the tiny recipe, set before torch is imported.

The last lines of a test run say on which CPU and C library which recorded roots were met.
"""

from pathlib import Path

import pytest

from instella import numerics
from instella.artifacts.journal import host_facts

RECIPES = Path(__file__).parents[1] / "recipes"

numerics.apply_environment("portable-x86")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one line: CPU model, C library, and each recorded recipe's root."""
    found: dict[str, object] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            found.update(getattr(report, "user_properties", ()))
    facts = host_facts()
    words = [f"CPU {facts['cpu']}", str(facts["libc"])]
    for path in sorted(RECIPES.glob("*.root")):
        root = path.read_text(encoding="ascii")[:16]
        said = found.get(f"root of {path.stem}")
        words.append(f"{path.stem} {said} recorded {root}" if said else f"{path.stem} not run")
    terminalreporter.write_line("same bytes: " + "; ".join(words))
