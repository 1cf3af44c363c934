"""The site file: what one cluster calls things. Nothing in it changes a result."""

from dataclasses import dataclass
from pathlib import Path

from instella.recipe.fields import FieldReader
from instella.recipe.settings import setting
from instella.recipe.tree import read_tree


@dataclass(frozen=True)
class Site:
    """Names and limits of a cluster; what is null is left to the cluster's defaults."""

    account: str | None = setting("account that pays", default=None)
    partition: str | None = setting("partition of the stages that train", default=None)
    cpu_partition: str | None = setting("partition of all others; null: the same", default=None)
    qos: str | None = setting("quality of service", default=None)
    constraint: str | None = setting("feature that nodes must have", default=None)
    gpu_type: str | None = setting("type in --gpus-per-node=TYPE:COUNT", default=None)
    options: tuple[str, ...] = setting("further options of sbatch, one an entry", default=())
    interface: str | None = setting(
        "network interface of the ranks; null: the one that leads to the first node", default=None
    )
    environment: dict[str, str] = setting("variables of the ranks", default=None)
    setup: tuple[str, ...] = setting(
        "shell lines before each stage, such as module load", default=()
    )
    cpus_per_rank: int = setting("cores of one rank", default=1, at_least=1)
    memory_mb: int | None = setting(
        "memory of a node that trains; null: estimated from the recipe", default=None, at_least=1
    )
    max_minutes: int = setting(
        "longest job; a stage that trains longer goes on in the next", default=1440, at_least=1
    )
    queue_minutes: int = setting(
        "longest wait of a job in the queue, after which it is cancelled; a week",
        default=10080,
        at_least=1,
    )
    stop_seconds: int = setting(
        "before a job's end a stage keeps a checkpoint and is queued again",
        default=300,
        at_least=0,
    )


def read_site(path: Path | None) -> Site:
    """The site in a YAML file; all defaults without one.

    Raises:
        BadUse: with file and line of the first fault.
    """
    if path is None:
        return Site()
    site: Site = FieldReader(str(path)).read(Site, read_tree(path))
    return site
