"""What a cluster offers, from ``sinfo`` and ``scontrol``, against what the stages need."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from instella.cluster.needs import Needs
from instella.cluster.site import Site
from instella.cluster.slurm import ask, seconds_of

FORMAT = "%R|%a|%l|%D|%c|%m|%G|%t"
# States in which a node will not take a job before somebody mends it.
GONE = ("down", "drain", "drng", "fail", "unk", "maint", "inval", "futr", "boot")
# The executor asks squeue every three minutes at the latest.
MIN_JOB_AGE = 240


@dataclass(frozen=True)
class Offer:
    """Equal nodes of one partition.

    Attributes:
        partition: name.
        is_default: jobs that name no partition go there.
        is_up: the partition takes jobs.
        minutes: longest job; inf without a limit.
        nodes: how many.
        cpus, mem_mb, gpus: of each.
        works: the nodes take jobs, now or when they are free.
    """

    partition: str
    is_default: bool
    is_up: bool
    minutes: float
    nodes: int
    cpus: int
    mem_mb: int
    gpus: int
    works: bool


def offers() -> list[Offer]:
    """Every kind of node of every partition; KitError where SLURM does not answer."""
    default = _default(ask("sinfo", "--noheader", "--format", "%P"))
    return read_offers(ask("sinfo", "--noheader", "--format", FORMAT), default)


def _default(text: str) -> str:
    return next((word.rstrip("*") for word in text.split() if word.endswith("*")), "")


def read_offers(text: str, default: str) -> list[Offer]:
    """What ``sinfo --format FORMAT`` printed; ``default`` is the default partition."""
    found = []
    for line in text.splitlines():
        name, state, limit, nodes, cpus, memory, gres, condition = line.strip().split("|")
        seconds = seconds_of(limit if ":" in limit else f"{limit}:00")
        found.append(
            Offer(
                partition=name,
                is_default=name == default,
                is_up=state == "up",
                minutes=float("inf") if seconds is None else seconds / 60,
                nodes=int(nodes),
                cpus=_number(cpus),
                mem_mb=_number(memory),
                gpus=sum(map(int, re.findall(r"\bgpu(?::[^:,()]+)?:(\d+)", gres))),
                works=not condition.startswith(GONE),
            )
        )
    return found


def _number(text: str) -> int:
    """A count, of which sinfo says ``64+`` for unequal nodes."""
    return int(text.rstrip("+"))


def lacks(needs: Mapping[str, Needs], site: Site, offered: Sequence[Offer]) -> list[str]:
    """One line for each thing that the cluster does not have.

    Args:
        needs: stage to what it books.
        site: partitions.
        offered: of the cluster.
    """
    lines: list[str] = []
    for partition, stages in _by_partition(needs, site).items():
        there = [item for item in offered if item.partition == partition]
        if partition is None:
            there = [item for item in offered if item.is_default]
        lines += _lacks_of(partition or "the default partition", stages, there, site)
    return list(dict.fromkeys(lines))


def _by_partition(needs: Mapping[str, Needs], site: Site) -> dict[str | None, dict[str, Needs]]:
    found: dict[str | None, dict[str, Needs]] = {}
    for stage, need in needs.items():
        chosen = site.partition if need.trains or need.gpus else site.cpu_partition
        found.setdefault(chosen or site.partition, {})[stage] = need
    return found


def _lacks_of(
    where: str, needs: Mapping[str, Needs], there: Sequence[Offer], site: Site
) -> list[str]:
    if not there:
        return [f"{where} is not there; name another in the site file (sinfo lists them)"]
    if not any(item.is_up for item in there):
        return [f"{where} is not up; name another in the site file"]
    lines = []
    longest = max(item.minutes for item in there)
    slowest = max(needs, key=lambda stage: needs[stage].minutes)
    if needs[slowest].minutes > longest:
        lines.append(
            f"{where} ends jobs after {longest:.0f} min, and {slowest} books "
            f"{needs[slowest].minutes}; set max_minutes: {longest:.0f} in the site file"
        )
    alike: dict[tuple[int, str], list[str]] = {}
    for stage, need in needs.items():
        has = _unfit(need, there, site)
        if has is not None:
            cpus = _cpus(need, site)
            shape = f"with {cpus} cores, {need.mem_mb:,} MB and {need.gpus} accelerators"
            alike.setdefault((need.nodes, f"{shape}; {where} has {has}"), []).append(stage)
    for (nodes, text), stages in alike.items():
        more = f" (and {len(stages) - 1} more)" if len(stages) > 1 else ""
        lines.append(f"{stages[0]}{more} needs {nodes} nodes {text}")
    return lines


def _cpus(need: Needs, site: Site) -> int:
    return need.ranks * (site.cpus_per_rank if need.trains else 1)


def _unfit(need: Needs, there: Iterable[Offer], site: Site) -> str | None:
    """How many nodes are fit, when these are too few."""
    fits = [
        item
        for item in there
        if item.cpus >= _cpus(need, site) and item.mem_mb >= need.mem_mb and item.gpus >= need.gpus
    ]
    count = sum(item.nodes for item in fits)
    working = sum(item.nodes for item in fits if item.works)
    if count < need.nodes:
        return str(count)
    return f"{working} that work" if working < need.nodes else None


def habits(text: str) -> list[str]:
    """What of ``scontrol show config`` gets in the way; one line each."""
    values = dict(re.findall(r"(?m)^(\w+)\s*= (.*)$", text))
    age = re.match(r"\d+", values.get("MinJobAge", ""))
    lines = []
    if age and int(age[0]) < MIN_JOB_AGE:
        lines.append(
            f"MinJobAge is {age[0]} s: squeue may forget a job before Snakemake asks for it, and "
            f"the run then ends after a while, to be started again; {MIN_JOB_AGE} s are enough"
        )
    return lines
