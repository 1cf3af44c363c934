"""Starts the processes in which stages and steps are run again: the Python of this one."""

import os
import sys
from pathlib import Path

from instella.artifacts.handover import run_handed_over
from instella.artifacts.identity import PACKAGE_FOLDER
from instella.progress import Reporter


def start(module: str, arguments: list[str], file: Path, report: Reporter) -> None:
    """Run a module to its end; its lines go to ``report``.

    Args:
        module: its name.
        arguments: that stand before the file.
        file: what it is to do, and beside which it writes its failure.
        report: progress.

    Raises:
        KitError: the module's own error, of the class that it tells; MachineError if a signal
            ended it.
        OSError: what it met that was none of the kit's own errors, such as a full disk.
    """
    path = os.pathsep.join([str(PACKAGE_FOLDER.parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)}
    command = [sys.executable, "-m", module, *arguments, str(file)]
    run_handed_over(command, report, environment, file)
