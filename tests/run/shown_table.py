"""What is done with each command that README and docs show; ``test_shown_commands.py`` reads it.

A command stands without ``.venv/bin/``. It is in exactly one class:

RUN       a test runs it in a copy of the finished nano run, for ``results/tiny`` its results
ELSEWHERE another test runs it, or what it stands for: the file says which
PARSED    the parser of the command line takes it, once placeholders have a value; not run, since
          it needs what the heading says
NAMED     names a command or program in the middle of a sentence; a command must exist
NOT_RUN   neither, with the reason
"""

RUN = (
    "./kit run",
    "./kit run -n",
    "./kit run --quiet host",
    "./kit run --config recipe=recipes/nano.yaml",
    "./kit run -n --config recipe=recipes/instella-3b.yaml",
    "./kit setup",
    "cp recipes/tiny.yaml recipes/mine.yaml",
    "instella --version",
    "instella status",
    "instella status --watch",
    "instella tensorboard --watch",
    "instella root",
    "instella audit",
    "instella store gc --dry-run",
    "instella store verify",
    "instella recipe check",
    "instella recipe plan",
    "instella recipe show [RECIPE]",
    "instella recipe check [RECIPE]",
    "instella recipe deviations [RECIPE]",
    "instella recipe deviations recipes/instella-3b.yaml",
    "instella recipe plan [RECIPE]",
    "instella data trace sft",
    "instella data trace CHECKPOINT",
    "instella data trace CHECKPOINT --step 1:4",
    "instella diff results/tiny results/mine",
    "instella diverge A B",
    "instella report",
    "instella report --watts 65 --price 0.30",
    "instella report A B",
    "instella report results/tiny results/mine",
    "instella why STAGE",
    "instella why sft",
    "instella stages",
    "instella export model-card --output FOLDER",
    "instella statement key FILE",
    # writes over the key's file, so it comes behind it
    "instella diff A B [--json FILE]",
    "instella root --recipe recipes/tiny.yaml --stages > recipes/tiny.root",
    "python -m instella.commands.pages",
    "python -m instella.recipe.schema",
)

ELSEWHERE = {
    "./kit setup exports": "tests/run/test_exports.py",
    "./kit setup s3": "tests/artifacts/test_store_s3.py",
    "./kit setup docs": "tests/run/test_docs_site.py",
    ".venvs/docs/bin/python -m mkdocs build --strict": "tests/run/test_docs_site.py",
    "./kit setup tensorboard": "tests/report/test_tensorboard.py",
    "./kit run --config recipe=recipes/COPY.yaml": "tests/run/test_changes.py",
    "./kit run --config recipe=recipes/mine.yaml": "tests/run/test_changes.py",
    "./kit run --config recipe=recipes/NAME.yaml": "tests/run/test_changes.py",
    "./kit run --profile workflow/profiles/slurm": "tests/slurm/test_nano.py",
    "instella prove --quick": "tests/run/conftest.py",
    "instella statement sign": "tests/run/test_run_statements.py",
    "instella data where HASH": "tests/run/test_run_trace.py",
    "instella evaluation overlap": "tests/run/test_run_evaluation.py",
}

PARSED = {
    "computes again, or the time of a whole run": (
        "instella audit --sample 1",
        "instella audit [--jobs N] [--sample N [--seed S]] [--key FILE] [--json FILE]",
        "instella audit --key FILE.pub",
        "instella prove [--quick] [--recipe FILE] [--rows A,B] [--json FILE] [--keep FOLDER]",
        "instella diverge A B [--no-replay] [--cpu-hours H] [--json FILE]",
        "instella stage tokens_pretrain_stage1 --units 3/16",
        "instella stage tokens_pretrain_stage1",
    ),
    "needs another recipe, text of a document, a published folder or a network": (
        "instella why STAGE --recipe recipes/COPY.yaml",
        "instella import FOLDER --as STAGE",
        "instella import FOLDER --as sft --recipe recipes/NAME.yaml",
        "instella import --remove sft",
        "instella data lock NAME",
        "instella data fetch NAME",
        "instella data where @FILE",
        "instella data where 'some words of it'",
        "instella evaluation suites",
        "instella evaluation reconcile",
        "instella store push URL [STAGE ...] [--read-back]",
        "instella store pull URL [STAGE ...]",
        "instella store gc [--dry-run] [--results FOLDER ...] [--recipe FILE ...] [--spare HOURS]",
    ),
    "says what the machine lacks, so its exit code is the machine's": (
        "instella doctor",
        "instella --recipe recipes/nano.yaml doctor",
        "instella --recipe recipes/nano.yaml doctor --cluster",
    ),
    "needs an engine of containers or its image": (
        "instella image build cpu --load docker",
        "instella image build NAME [--load ENGINE]",
        "instella image verify NAME",
        "instella image lock NAME [--packages]",
        "instella image lock cpu",
        "instella image run NAME -- WORD...",
        "instella image parts NAME",
    ),
    "needs the environment of another engine": (
        "instella --recipe recipes/instella-3b.yaml engines render grpo1 --output FOLDER",
        "instella --recipe recipes/instella-3b.yaml engines check grpo1",
        "instella --recipe recipes/instella-3b.yaml engines export grpo1 "
        "--checkpoint FOLDER/checkpoints/global_step_1200 --output MADE",
        "instella engines rehearse grpo1 --output FOLDER --steps 2",
        "instella engines agree grpo3 --prompts 64",
        "instella evaluation harness sft --tasks arc_easy,sums --output OUT",
        "instella evaluation judge answer dpo --questions FILE SHA256 --output answers.jsonl",
        "instella evaluation judge ask mt_bench answers.jsonl --questions FILE SHA256 "
        "--prompts FILE SHA256 --model NAME --output OUT",
    ),
    "its own tests call what is behind it": (
        "instella evaluation overlap --json",
        "instella evaluation difference L R METRIC",
        "instella evaluation prompts CHECKPOINT SET",
        "instella evaluation prompts sft sums",
        "instella export ro-crate --output FOLDER",
        "instella export sbom --output FOLDER",
        "instella export ml-bom [CHECKPOINT ...] --output FOLDER",
        "instella export model-card [CHECKPOINT ...] [--watts W] --output FOLDER",
        "instella statement sign --key KEY [--public FILE]",
        "instella statement verify --key FILE.pub",
        "instella statement prove --key FILE.pub STAGE FILE [--line N | --score SET/METRIC] "
        "--out PROOF",
        "instella statement check --key FILE.pub PROOF [FILE]",
        "instella statement scan [PATH ...]",
    ),
}

NAMED = (
    "instella audit --sample",
    "instella import",
    "instella engines",
    "instella stage",
    "instella stage STAGE",
    "instella stage NAME",
    "instella image build",
    "instella prove",
    "instella requeue",
    "instella evaluation harness CHECKPOINT",
    "instella evaluation judge answer|ask",
    "instella evaluation ttt make|check|score",
    "instella COMMAND",
    "snakemake --report",
)

NOT_RUN = {
    "needs a package of the system, which needs root": (
        "apt install mmdebstrap docker.io",
        "apt install qemu-user",
        "apt install bindfs",
    ),
    "sets up an environment of a gigabyte or one for measurements; tests/kit tests kit itself": (
        "./kit setup verl",
        "./kit setup vllm",
        "./kit setup harness",
        "./kit setup signing",
        "./kit setup slurm",
        "./kit setup test",
    ),
    "runs tests, so it cannot be one": (
        "./kit test",
        "./kit test tests/recipe",
        "./kit test tests/engines",
        "./kit test tests/slurm",
    ),
    "needs a cluster, or several nodes": (
        "git clone ADDRESS instella && cd instella",
        "./kit run --profile workflow/profiles/slurm --config recipe=recipes/nano.yaml -n",
        "./kit run --profile workflow/profiles/slurm --workflow-profile workflow/profiles/short "
        "--config recipe=recipes/nano.yaml ranks=2",
        "python tests/slurm/run_tiny.py",
        "srun --nodes N --ntasks-per-node R python -m instella job FILE",
        "torchrun ... -m instella job FILE",
        "torchrun --nnodes=2 --nproc-per-node=8 --node-rank=N --master-addr=ADDRESS "
        "--master-port=29400 -m instella job FILE",
        "./kit run --config recipe=recipes/instella-3b.yaml",
    ),
    "needs an engine of containers and its image": (
        './kit run --config \'container={"engine": "docker"}\'',
        "./kit run --profile workflow/profiles/apptainer",
        "apptainer build downloads/images/cpu-DIGEST.sif "
        "docker-archive:downloads/images/cpu-DIGEST.tar",
    ),
    "needs a program of an environment that is not set up for tests": (
        ".venvs/exports/bin/rocrate-validator validate -p provenance-run-crate FOLDER",
        ".venvs/signing/bin/model_signing verify key results/tiny/grpo3 "
        "--signature results/tiny/statements/models/grpo3.sig --public_key FILE.pub",
        ".venvs/signing/bin/python tests/statements/public_verifiers.py FILE.pub results/tiny",
        ".venvs/signing/bin/model_signing sign sigstore results/tiny/grpo3",
    ),
    "serves pages until it is ended; a test reads the files with TensorBoard's own reader": (
        ".venvs/tensorboard/bin/tensorboard --logdir results/tiny/journal/tensorboard",
    ),
    "needs a recipe that imports": (
        "./kit run results/NAME/tokenizer/manifest.json --config recipe=recipes/NAME.yaml",
    ),
    "measures for minutes": (
        "python -m benchmarks.growth",
        "python -m benchmarks.harness_checks",
        "python -m benchmarks.tamper",
        "python -m benchmarks.kill_campaign",
        "python -m benchmarks.portable_step",
        "python -m benchmarks.ranks",
    ),
}

# What stands for a placeholder. Folders and files are of the copy.
VALUES = {
    "N": "2", "S": "1", "H": "1", "W": "65", "HOURS": "24", "A": "results/nano", "B": "results/nano",
    "STAGE": "sft", "CHECKPOINT": "sft", "SET": "sums", "METRIC": "pass@1", "L": "sft", "R": "dpo",
    "RECIPE": "recipes/nano.yaml", "NAME": "cpu", "FILE": "made/file", "FILE.pub": "made/file.pub",
    "FOLDER": "made/folder", "SHA256": "0" * 64, "HASH": "0" * 64, "A,B": "a,b", "WORD...": "true",
    "results/tiny": "results/nano", "results/mine": "results/nano", "SET/METRIC": "sums/pass@1",
    "ENGINE": "docker", "@FILE": "@made/file", "recipes/tiny.root": "made/root",
}  # fmt: skip
