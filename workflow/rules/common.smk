# What the rules share: the recipe's graph, the files of a stage, and the check of what is there.
import collections
import functools
import os
import shlex
import signal
import sys
import threading
from dataclasses import asdict
from pathlib import Path

from snakemake.io import IOFile
from snakemake.logging import logger

sys.path.insert(0, str(workflow.basedir))

# Snakemake loads pandas, which takes longer than all the rest, to compare params that may be
# data frames. Ours are text; None makes it look as if pandas were not installed.
sys.modules.setdefault("pandas", None)

from instella.artifacts.check import check_results, outdated, root, withdraw
from instella.artifacts.identity import Toolchain, fingerprints
from instella.artifacts.places import check_rights, check_shape
from instella.artifacts.store import Store
from instella.canonical import json_bytes, sha256_bytes
from instella.cluster import booking
from instella.cluster.needs import LOCAL
from instella.cluster.site import read_site
from instella.containers.images import stage_images
from instella.errors import BadUse, Incomplete, KitError
from instella.recipe.graph import build_graph, checkpoints
from instella.recipe.readiness import require_ready
from instella.recipe.reader import read_placement, read_recipe


def tells_of_stages(record):
    """Filter: a run told not to print rules says of its own doings only how far it is."""
    quiet = {item.name for item in workflow.output_settings.quiet or ()}
    event = getattr(getattr(record, "event", None), "name", "")
    housekeeping = str(record.msg).startswith(("Select jobs to execute", "Execute "))
    return "RULES" not in quiet or not (housekeeping or event in ("JOB_FINISHED", "RUN_INFO"))


logger.addFilter(tells_of_stages)


def in_one_line(error):
    """Ends Snakemake with the error's line and exit status, without a traceback."""
    print(f"Error: {error}", file=sys.stderr)
    sys.exit(error.exit_code)


try:
    # Only what --config and --configfile say, so that faults of config.yaml have their line.
    PLACEMENT = read_placement(Path("config.yaml"), **workflow.config_settings.overwrite_config)
    RECIPE = read_recipe(Path(PLACEMENT.recipe))
    SITE = read_site(Path(PLACEMENT.site) if PLACEMENT.site else None)
    GRAPH = build_graph(RECIPE)
    STORE = Store(Path(PLACEMENT.store))
    images = stage_images(GRAPH, RECIPE.numerics, PLACEMENT.container)
    TOOLCHAIN = Toolchain.here(RECIPE.numerics, images, STORE.root / "cache")
    # Rules also name stages that imports leave out of the graph; nothing asks for those.
    FINGERPRINTS = collections.defaultdict(str, fingerprints(GRAPH, TOOLCHAIN))
except KitError as error:
    in_one_line(error)

# As a Path, since Snakemake takes ./results/ and results for two things.
RESULTS = str(Path(PLACEMENT.results, RECIPE.name))

try:
    # Here, since Snakemake looks at outputs before it calls any function of a rule.
    check_shape(Path(RESULTS), GRAPH)
except KitError as error:
    in_one_line(error)

# The placement as the command line gets it: config.yaml with the overrides in it.
PLACEMENT_JSON = json_bytes(asdict(PLACEMENT))
PLACEMENT_FILE = Path(".snakemake", "instella", f"{sha256_bytes(PLACEMENT_JSON)}.json")


def command_prefix():
    """Shell text that defines the command ``instella`` for every job.

    Snakemake reruns a job whose command or params changed. Where Python lies and where things
    are put is no such change, so it stands here, in what is not compared.
    """
    call = shlex.join([sys.executable, "-m", "instella", "--config", str(PLACEMENT_FILE)])
    setup = "".join(f"{line}\n" for line in SITE.setup)
    if PLACEMENT.launcher != LOCAL:
        # A warning signal reaches the shell too, which has to wait for the stage's checkpoint.
        setup += "trap : TERM USR1\n"
    return f'{setup}set -euo pipefail; instella() {{ {call} "$@"; }}; '


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
        if name not in GRAPH:
            where = f"{PLACEMENT.recipe}: {name} is left out, since the imports stand for it"
            in_one_line(BadUse(f"{where}; remove the imports, or ask for another stage"))
        return {role: manifest(source) for role, source in GRAPH[name].inputs.items()}

    return inputs


def fingerprint_of(stage):
    """Params function: settings by name, code and lock as one value Snakemake can compare."""

    def fingerprint(wildcards):
        return FINGERPRINTS[stage.format(**wildcards)]

    return fingerprint


def resources_of(stage):
    """Resources of a rule: memory and time, on a cluster also nodes and what the site names.

    Args:
        stage: name or pattern of the rule's stages, which all need the same.
    """
    return booking.resources(stage, GRAPH, RECIPE, PLACEMENT, SITE)


@functools.cache
def prepare_run():
    """Has stages whose stored bytes are altered or missing made again.

    Runs while the graph of jobs is built, where it is known at last whether this is a real
    run: linting, unlocking, reports and the processes of single jobs leave things alone, and
    so does a run that Snakemake is about to refuse because another one is at work. A whole
    run that cannot come to its end is refused here.
    """
    executing = workflow.is_main_process and workflow.executor_plugin is not None
    locks = Path(".snakemake", "locks")
    if not executing or workflow.touch:
        return
    if not workflow.dryrun and not workflow.dag_settings.targets:
        try:
            require_ready(RECIPE, Path(PLACEMENT.recipe), PLACEMENT.launcher)
        except KitError as error:
            in_one_line(error)
    faults = check_results(Path(RESULTS), STORE, GRAPH)
    if unknown := results_unknown_to_snakemake():
        faults += outdated(Path(RESULTS), STORE, GRAPH, TOOLCHAIN, unknown)
    first_of_stage = {fault.stage: fault for fault in reversed(faults)}
    for fault in first_of_stage.values():
        print(f"{fault}; to be made again", file=sys.stderr)
    if workflow.dryrun and PLACEMENT.launcher != LOCAL:
        print(*booking.report(GRAPH, RECIPE, PLACEMENT, SITE), sep="\n", file=sys.stderr)
    if not workflow.dryrun and not (locks.is_dir() and any(locks.iterdir())):
        if PLACEMENT.launcher != LOCAL:
            clear_left_over()
        if faults:
            require_rights()
        withdraw(Path(RESULTS), faults)
        remove_altered_summaries()
        PLACEMENT_FILE.parent.mkdir(parents=True, exist_ok=True)
        PLACEMENT_FILE.write_bytes(PLACEMENT_JSON)


def results_unknown_to_snakemake():
    """Stages with a result of which Snakemake has no notes, so that it sees no change of theirs."""

    def is_known(stage):
        return workflow.persistence.metadata(IOFile(manifest(stage))) is not None

    there = [stage for stage in GRAPH if Path(manifest(stage)).is_file()]
    return [stage for stage in there if not is_known(stage)]


def require_rights():
    """Ends a run that could not write what it makes."""
    try:
        check_rights(Path(RESULTS), STORE, GRAPH)
    except KitError as error:
        in_one_line(error)


def clear_left_over():
    """Ends the jobs of an earlier run of this folder, so that no stage runs twice at once."""
    # Here, as below: what only a cluster needs costs other runs no time.
    from instella.cluster import left_over

    try:
        left_over.clear(Path.cwd(), lambda line: print(line, file=sys.stderr))
    except KitError as error:
        in_one_line(error)


def watch_jobs():
    """Starts the thread that bounds the waits of a run on a cluster."""
    executor = workflow.scheduler._executor
    if PLACEMENT.launcher == LOCAL or not hasattr(executor, "active_jobs"):
        return

    from instella.cluster.submitted import Submitted
    from instella.cluster.waiting import Watch

    def say(line):
        print(line, file=sys.stderr)

    def give_up(line):
        say(f"Error: {line}")
        os.kill(os.getpid(), signal.SIGUSR1)

    # As Ctrl-C ends a run, but that a run in the background of a shell ignores.
    signal.signal(signal.SIGUSR1, signal.default_int_handler)
    watch = Watch(Submitted(executor).numbers, SITE, say, give_up)
    threading.Thread(target=watch.stay, daemon=True).start()


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
