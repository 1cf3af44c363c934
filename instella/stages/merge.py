"""The mean of several stages' weights (uniform soup), in the order the settings give."""

from instella import canonical
from instella.artifacts.job import Job
from instella.errors import VerificationError
from instella.network.folder import load_folder, save_folder
from instella.network.merge import mean_state

TRAINER = "trainer.json"


def run(job: Job) -> None:
    """Add the inputs one after another, divide by their number, publish the result.

    The order of the sum decides bits, so it is a setting.
    """
    order = list(job.settings["order"])
    networks = [load_folder(job.inputs[role], job.numerics) for role in order]
    first = networks[0]
    for role, network in zip(order, networks, strict=True):
        if network.settings != first.settings:
            raise VerificationError(
                f"{job.inputs[role]}: another shape of network than {job.inputs[order[0]]}: "
                "only equal shapes have a mean"
            )
    mean = mean_state([network.state_dict() for network in networks])
    first.load_state_dict(mean)
    folder = job.inputs[order[0]]
    save_folder(job.output, first, folder, first.settings.max_position_embeddings)
    canonical.write_json(job.output / TRAINER, {"inputs": order})
