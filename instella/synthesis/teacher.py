"""Who answers: what every teacher can do, and which one a recipe asks for."""

from typing import Protocol

from instella.artifacts.job import Job
from instella.recipe.settings import Teacher as TeacherSettings
from instella.synthesis.endpoint import Endpoint
from instella.synthesis.replies import Row
from instella.synthesis.rules import RulesTeacher


class Teacher(Protocol):
    """Gives replies; says nothing about whether they are right.

    ``attempt`` counts from 0 and changes the reply of a teacher that samples. ``log``
    collects the requests whose replies a transcript holds. Any method may raise
    ``replies.Rejected``.
    """

    connections: int
    """Calls that may run at once, in threads."""

    def abstract(self, problem: Row, attempt: int, temperature: float, log: list[str]) -> str:
        """JSON with template and parameters of a problem (``key``, ``question``)."""
        ...

    def program(self, problem: Row, attempt: int, temperature: float, log: list[str]) -> str:
        """A Python function ``solve`` of the parameters of an abstracted problem."""
        ...

    def values(
        self, problem: Row, count: int, attempt: int, temperature: float, log: list[str]
    ) -> str:
        """JSON list of ``count`` new value sets."""
        ...

    def reword(self, problem: Row, values: Row, temperature: float, log: list[str]) -> str:
        """The question with new values."""
        ...

    def solve(
        self, item: Row, problem: Row, attempt: int, temperature: float, log: list[str]
    ) -> str:
        """A worked solution of the new question ``item`` made from ``problem``."""
        ...

    def close(self) -> None:
        """Let go of files."""
        ...


def teacher_of(job: Job) -> Teacher:
    """The teacher that the job's settings name.

    Raises:
        BadUse: an endpoint without an address.
    """
    settings: TeacherSettings = job.settings["teacher"]
    return RulesTeacher(job.settings["seed"]) if settings.kind == "rules" else Endpoint(job)
