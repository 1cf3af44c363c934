# What the rules share: the recipe's graph, the files of a stage, and the check of what is there.
import functools
import shlex
import sys
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(workflow.basedir))

# Snakemake loads pandas, which takes longer than all the rest, to compare params that may be
# data frames. Ours are text; None makes it look as if pandas were not installed.
sys.modules.setdefault("pandas", None)

from instella.artifacts.check import check_results, root, withdraw
from instella.artifacts.identity import Toolchain, fingerprints
from instella.artifacts.store import Store
from instella.canonical import json_bytes, sha256_bytes
from instella.errors import Incomplete, KitError
from instella.recipe.graph import build_graph, checkpoints
from instella.recipe.reader import read_placement, read_recipe


def in_one_line(error):
    """Ends Snakemake with the error's line and exit status, without a traceback."""
    print(f"Error: {error}", file=sys.stderr)
    sys.exit(error.exit_code)


try:
    # Only what --config and --configfile say, so that faults of config.yaml have their line.
    PLACEMENT = read_placement(Path("config.yaml"), **workflow.config_settings.overwrite_config)
    RECIPE = read_recipe(Path(PLACEMENT.recipe))
    GRAPH = build_graph(RECIPE)
    STORE = Store(Path(PLACEMENT.store))
    FINGERPRINTS = fingerprints(GRAPH, Toolchain.here(RECIPE.numerics, cache=STORE.root / "cache"))
except KitError as error:
    in_one_line(error)

# As a Path, since Snakemake takes ./results/ and results for two things.
RESULTS = str(Path(PLACEMENT.results, RECIPE.name))

# The placement as the command line gets it: config.yaml with the overrides in it.
PLACEMENT_JSON = json_bytes(asdict(PLACEMENT))
PLACEMENT_FILE = Path(".snakemake", "instella", f"{sha256_bytes(PLACEMENT_JSON)}.json")


def command_prefix():
    """Shell text that defines the command ``instella`` for every job.

    Snakemake reruns a job whose command or params changed. Where Python lies and where things
    are put is no such change, so it stands here, in what is not compared.
    """
    call = shlex.join([sys.executable, "-m", "instella", "--config", str(PLACEMENT_FILE)])
    return f'set -euo pipefail; instella() {{ {call} "$@"; }}; '


shell.prefix(command_prefix().replace("{", "{{").replace("}", "}}"))


wildcard_constraints:
    source="|".join(RECIPE.sources),
    checkpoint="|".join(checkpoints(RECIPE)),
    seed="|".join(map(str, RECIPE.stages.pretrain_stage2.seeds)),


def manifest(stage):
    """The one declared output of a stage; it lists every file with its SHA-256."""
    return f"{RESULTS}/{stage}/manifest.json"


def log_of(stage):
    return f"{RESULTS}/logs/{stage}.log"


def benchmark_of(stage):
    return f"{RESULTS}/benchmarks/{stage}.tsv"


def inputs_of(stage):
    """Input function: role to manifest of each input of a stage, as the graph has them."""

    def inputs(wildcards):
        prepare_run()
        name = stage.format(**wildcards)
        return {role: manifest(source) for role, source in GRAPH[name].inputs.items()}

    return inputs


def fingerprint_of(stage):
    """Params function: settings by name, code and lock as one value Snakemake can compare."""

    def fingerprint(wildcards):
        return FINGERPRINTS[stage.format(**wildcards)]

    return fingerprint


@functools.cache
def prepare_run():
    """Has stages whose stored bytes are altered or missing made again.

    Runs while the graph of jobs is built, where it is known at last whether this is a real
    run: linting, unlocking, reports and the processes of single jobs leave things alone, and
    so does a run that Snakemake is about to refuse because another one is at work.
    """
    executing = workflow.is_main_process and workflow.executor_plugin is not None
    locks = Path(".snakemake", "locks")
    if not executing or workflow.touch:
        return
    faults = check_results(Path(RESULTS), STORE, GRAPH)
    first_of_stage = {fault.stage: fault for fault in reversed(faults)}
    for fault in first_of_stage.values():
        print(f"{fault}; to be made again", file=sys.stderr)
    if not workflow.dryrun and not (locks.is_dir() and any(locks.iterdir())):
        withdraw(Path(RESULTS), faults)
        remove_altered_summaries()
        PLACEMENT_FILE.parent.mkdir(parents=True, exist_ok=True)
        PLACEMENT_FILE.write_bytes(PLACEMENT_JSON)


def remove_altered_summaries():
    """Removes the table and the root when they are not what the manifests say."""
    table, source = Path(RESULTS, "table.md"), Path(RESULTS, "results", "table.md")
    if source.is_file() and table.is_file() and table.read_bytes() != source.read_bytes():
        table.unlink()
    try:
        text = root(Path(RESULTS), GRAPH)
    except Incomplete:
        return  # The root is made anew with the stages that are missing.
    summary = Path(RESULTS, "root")
    if summary.is_file() and summary.read_bytes() != f"{text}\n".encode("ascii"):
        summary.unlink()


def closing_words():
    """The results table and the root, when the whole recipe was asked for."""
    table, root = (Path(RESULTS, name) for name in ("table.md", "root"))
    if not any(job.rule.name == "all" for job in workflow.dag.jobs):
        return f"Made what was asked for, in {RESULTS}."
    words = [table.read_text(encoding="utf-8"), f"This table: {table}", "Root of the run:"]
    return "\n".join([*words, root.read_text(encoding="utf-8")])
