"""A rank that imports other code than rank 0 is found out before the first step."""

import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from instella.artifacts.identity import PACKAGE_FOLDER

SCRIPT = textwrap.dedent(
    '''
    """Edits the package after it was imported, then starts another rank."""

    import sys
    from pathlib import Path

    from instella import numerics

    numerics.apply_environment("portable-x86")

    from instella.errors import VerificationError
    from instella.training import agreement
    from instella.training.processes import launch


    def agree(group):
        agreement.check_agreement(group, {"step": "00" * 32, "code": agreement.CODE})


    if __name__ == "__main__":
        with open(Path(agreement.__file__).with_name("order.py"), "a") as file:
            file.write(sys.argv[1])
        try:
            launch(2, agree)
        except VerificationError as error:
            print(error)
        else:
            print("agreed")
    '''
)


@pytest.mark.parametrize(
    ("added", "said"),
    [("", "agreed"), ("SEED_SHIFT = 1\n", "rank 1 starts with other code than rank 0: ")],
)
def test_code_edited_while_ranks_start(tmp_path: Path, added: str, said: str) -> None:
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE_FOLDER, tmp_path / "instella", ignore=ignored)
    script = tmp_path / "late.py"
    script.write_text(SCRIPT, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, script.name, added],
        cwd=tmp_path, text=True, capture_output=True, timeout=300,
    )  # fmt: skip
    assert done.stdout.startswith(said), done.stdout + done.stderr
