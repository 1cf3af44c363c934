"""Snakemake's graph is the recipe's graph, read quickly and explained in one line."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from instella.recipe.graph import build_graph
from instella.recipe.reader import read_recipe

from .conftest import ROOT, Tree

RECIPES = sorted(path.name for path in (ROOT / "recipes").glob("*.yaml"))
# numpy is not in the list: Snakemake loads it for an empty workflow too.
HEAVY = ("torch", "pandas", "pyarrow", "transformers", "datasets", "tokenizers")


@pytest.mark.parametrize("name", RECIPES)
def test_dry_run_has_every_stage_with_its_inputs(real_tree: Tree, name: str) -> None:
    recipe = read_recipe(ROOT / "recipes" / name)
    done = real_tree.snakemake("-n", "--config", f"recipe=recipes/{name}")
    assert done.returncode == 0, done.stdout
    planned = jobs(done.stdout)
    folder = f"results/{recipe.name}"
    for stage in build_graph(recipe).values():
        sources = {f"{folder}/{source}/manifest.json" for source in stage.inputs.values()}
        assert planned.pop(f"{folder}/{stage.name}/manifest.json") == sources, stage.name
    assert set(planned) == {f"{folder}/{name}" for name in ("table.md", "root", "report.html")}


def jobs(text: str) -> dict[str, set[str]]:
    """Output to inputs of each job in the text of a dry run."""
    found = {}
    for block in re.split(r"\n(?:local)?rule ", text)[1:]:
        files = dict(re.findall(r"^    (input|output): (.*)$", block, re.MULTILINE))
        if "output" in files:
            inputs = files.get("input", "")
            found[files["output"]] = set(inputs.split(", ")) if inputs else set()
    return found


def test_everything_leads_to_the_results() -> None:
    graph = build_graph(read_recipe(ROOT / "recipes/tiny.yaml"))
    reached, waiting = set(), ["results"]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += graph[name].inputs.values()
    assert reached == set(graph), "the rule root asks for the results only"


def test_a_dry_run_loads_nothing_heavy(real_tree: Tree) -> None:
    probe = real_tree.folder / "probe.py"
    probe.write_text(
        "import sys\n"
        "from snakemake.cli import main\n"
        "try:\n"
        "    main(['-n', '-q', 'all'])\n"
        "except SystemExit as end:\n"
        f"    print(end.code, [name for name in {HEAVY}\n"
        "          if sys.modules.get(name)])\n"
    )
    done = run_python(probe)
    assert done.splitlines()[-1] == "0 []", done


def test_what_the_rules_import_loads_no_numpy(tmp_path: Path) -> None:
    text = (ROOT / "workflow/rules/common.smk").read_text(encoding="utf-8")
    modules = sorted(set(re.findall(r"^from (instella\S+) import", text, re.MULTILINE)))
    assert "instella.artifacts.check" in modules
    probe = tmp_path / "probe.py"
    lines = [f"import sys; sys.path.insert(0, {str(ROOT)!r})", *(f"import {m}" for m in modules)]
    lines.append(f"print([name for name in {('numpy', *HEAVY)} if name in sys.modules])")
    probe.write_text("\n".join(lines), encoding="utf-8")
    assert run_python(probe) == "[]\n"


def run_python(script: Path) -> str:
    """Output of a script that runs in its own folder."""
    command = [sys.executable, script.name]
    done = subprocess.run(command, cwd=script.parent, text=True, capture_output=True, timeout=120)
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("recipe=recipes/none.yaml", "recipes/none.yaml"),
        ("rank=2", "rank"),
        ("ranks=many", "ranks"),
    ],
)
def test_bad_configuration_is_one_line(real_tree: Tree, override: str, expected: str) -> None:
    done = real_tree.snakemake("-n", "--config", override)
    assert done.returncode == 2
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("Error: ")]
    assert expected in line
    assert "Traceback" not in done.stdout
