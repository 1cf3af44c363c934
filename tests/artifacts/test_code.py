"""The code hash: what counts, what does not, and what is refused."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from instella.artifacts.code import CodeIndex
from instella.artifacts.identity import PACKAGE_FOLDER
from instella.errors import BadUse

from .toy import make_tree


def hash_of(package: Path, kind: str = "toy", cache: Path | None = None) -> str:
    return CodeIndex(package, cache).code_hash(kind)


@pytest.mark.parametrize(
    "text",
    [
        "# other\nFACTOR = 2\n",
        '"""Another docstring."""\n\n\nFACTOR   =   2\n',
        "FACTOR = (\n    2\n)\n",
        "FACTOR = 0x2\r\n",
    ],
)
def test_layout_and_docstrings_do_not_count(tmp_path: Path, text: str) -> None:
    package = make_tree(tmp_path)
    before = hash_of(package)
    (package / "helper.py").write_text(text)
    assert hash_of(package) == before


def test_docstrings_of_functions_do_not_count_but_other_strings_do(tmp_path: Path) -> None:
    package = make_tree(tmp_path)
    helper = package / "helper.py"
    hashes = []
    for doc, value in (("one", "a"), ("two", "a"), ("two", "b")):
        helper.write_text(f'FACTOR = 1\nclass C:\n    """{doc}"""\n    def f(self):\n'
                          f'        """{doc}"""\n        return "{value}"\n')  # fmt: skip
        hashes.append(hash_of(package))
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.parametrize(
    "text",
    ["FACTOR = 3\n", "FACTOR = 2.0\n", "FACTOR = '2'\n", "FACTOR = 2\nA = 1\n", "FACTOR = True\n"],
)
def test_code_counts(tmp_path: Path, text: str) -> None:
    package = make_tree(tmp_path)
    before = hash_of(package)
    (package / "helper.py").write_text(text)
    assert hash_of(package) != before


def test_unused_and_excluded_modules_do_not_count(tmp_path: Path) -> None:
    package = make_tree(tmp_path)
    (package / "stages" / "toy.py").write_text(
        "import instella.recipe.settings\nfrom instella import errors, progress\n"
        "from instella.artifacts.job import Job\n"
    )
    before = hash_of(package)
    (package / "unused.py").write_text("VALUE = 2\n")
    (package / "errors.py").write_text("VALUE = 2\n")
    assert hash_of(package) == before
    assert list(CodeIndex(package).closure("toy")) == [
        "instella", "instella.stages", "instella.stages.toy",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "statement",
    [
        "import instella.deep.leaf",
        "from instella.deep import leaf",
        "from instella.deep.leaf import X",
        "from instella.deep import leaf as other",
        "def f():\n    from instella.deep import leaf",
        "class C:\n    def f(self):\n        import instella.deep.leaf as l",
        "from ..deep import leaf",
        "from ..deep.leaf import X",
        "WORKER = ['-m', 'instella.deep.leaf']",
        "try:\n    pass\nfinally:\n    import instella.deep.leaf",
    ],
)
def test_every_way_to_import_is_followed(tmp_path: Path, statement: str) -> None:
    package = make_tree(tmp_path)
    (package / "deep").mkdir()
    (package / "deep" / "__init__.py").write_text("")
    (package / "deep" / "leaf.py").write_text("X = 1\n")
    (package / "stages" / "toy.py").write_text(statement + "\n")
    assert {"instella.deep", "instella.deep.leaf"} <= set(CodeIndex(package).closure("toy"))
    before = hash_of(package)
    (package / "deep" / "leaf.py").write_text("X = 2\n")
    changed = hash_of(package)
    (package / "deep" / "__init__.py").write_text("Y = 2\n")
    assert len({before, changed, hash_of(package)}) == 3


@pytest.mark.parametrize(
    "text",
    [
        "import importlib\nimportlib.import_module('instella.helper')\n",
        "from importlib import import_module\n",
        "m = __import__('instella.helper')\n",
        "exec('import instella.helper')\n",
        "eval('1')\n",
        "import runpy\nrunpy.run_module('instella.helper')\n",
        "from instella.helper import *\n",
        "import instella.nowhere\n",
        "x = (\n",
    ],
)
def test_what_cannot_be_followed_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    package = make_tree(tmp_path)
    (package / "helper2.py").write_text(text)
    (package / "stages" / "toy.py").write_text("def f():\n    import instella.helper2\n")
    with pytest.raises(BadUse) as error:
        hash_of(package)
    assert "helper2.py" in str(error.value) and "\n" not in str(error.value)


def test_methods_called_eval_are_not_dynamic(tmp_path: Path) -> None:
    package = make_tree(tmp_path)
    (package / "helper.py").write_text("import re\nre.compile('a')\ndef f(m):\n    m.eval()\n")
    assert len(hash_of(package)) == 64


def test_data_files_count_for_modules_that_read_beside_themselves(tmp_path: Path) -> None:
    package = make_tree(tmp_path)
    (package / "table.json").write_text("1")
    ignoring = hash_of(package)
    (package / "table.json").write_text("2")
    assert hash_of(package) == ignoring
    (package / "helper.py").write_text("from pathlib import Path\nFACTOR = Path(__file__)\n")
    reading = hash_of(package)
    (package / "table.json").write_text("3")
    assert hash_of(package) != reading


def test_unknown_kind_names_the_module(tmp_path: Path) -> None:
    with pytest.raises(BadUse, match=r"instella\.stages\.nope"):
        hash_of(make_tree(tmp_path), "nope")


def test_cache_changes_nothing_and_survives_damage(tmp_path: Path) -> None:
    package, cache = make_tree(tmp_path), tmp_path / "cache"
    plain = hash_of(package)
    assert hash_of(package, cache=cache) == plain
    file = cache / "code.json"
    good = file.read_bytes()
    for bad in (b"", b"junk", good[: len(good) // 2], good.replace(b'"digest":"', b'"digest":"0')):
        file.write_bytes(bad)
        assert hash_of(package, cache=cache) == plain
        assert file.read_bytes() == good
    (package / "helper.py").write_text("FACTOR = 3\n")
    assert hash_of(package, cache=cache) == hash_of(package) != plain


def test_cache_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package, cache = make_tree(tmp_path), tmp_path / "cache"
    plain = hash_of(package, cache=cache)
    monkeypatch.setattr("instella.artifacts.syntax.module_facts", None)
    assert hash_of(package, cache=cache) == plain


def test_every_stage_of_the_real_package_has_a_hash(tmp_path: Path) -> None:
    """All kinds, without loading torch or numpy."""
    kinds = sorted(
        path.stem for path in (PACKAGE_FOLDER / "stages").glob("*.py") if path.stem != "__init__"
    )
    script = (
        "import json, sys\nfrom pathlib import Path\n"
        "from instella.artifacts.code import CodeIndex\n"
        "index = CodeIndex(Path('instella'))\n"
        f"print(json.dumps([index.code_hash(kind) for kind in {kinds!r}]))\n"
        "assert not {'torch', 'numpy'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=PACKAGE_FOLDER.parent, capture_output=True, check=True
    )
    assert len(set(json.loads(done.stdout))) == len(kinds)
