"""The list of jobs that stands beside the executor's own, which loses jobs when nobody answers.

``test_lost_control.py`` shows the same with the executor itself.
"""

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from instella.cluster.submitted import Submitted


@dataclass
class Info:
    """What Snakemake notes of a submitted job."""

    external_jobid: str


@dataclass
class Executor:
    """The methods of Snakemake's RemoteExecutor, with states that a test sets; None: no answer."""

    states: dict[str, str] | None = field(default_factory=dict)
    active_jobs: list[Info] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def report_job_submission(self, job: Info, register_job: bool = True) -> None:
        self.active_jobs.append(job)

    def report_job_success(self, job: Info) -> None:
        pass

    def report_job_error(self, job: Info, msg: str = "") -> None:
        pass

    async def check_active_jobs(self, asked: list[Info]) -> AsyncIterator[Info]:
        if self.states is None:
            return
        for job in asked:
            state = self.states.get(job.external_jobid)
            if state == "COMPLETED":
                self.report_job_success(job)
            elif state == "FAILED":
                self.report_job_error(job, msg="failed")
            else:
                yield job

    def round(self) -> None:
        """One round of RemoteExecutor's thread."""

        async def check() -> None:
            asked = list(self.active_jobs)
            self.active_jobs.clear()
            self.active_jobs += [job async for job in self.check_active_jobs(asked)]

        asyncio.run(check())


def test_jobs_without_an_answer_are_asked_for_again() -> None:
    executor = Executor(states=None)
    submitted = Submitted(executor)
    jobs = [Info("7"), Info("8"), Info("9")]
    for job in jobs:
        executor.report_job_submission(job)
    executor.round()
    assert executor.active_jobs == jobs and submitted.numbers() == ["7", "8", "9"]
    executor.states = {"7": "COMPLETED", "8": "FAILED", "9": "RUNNING"}
    executor.round()
    assert executor.active_jobs == jobs[2:] and submitted.numbers() == ["9"]


def test_a_job_is_waited_for_while_its_state_is_asked() -> None:
    executor = Executor()
    submitted = Submitted(executor)
    executor.report_job_submission(Info("7"))
    executor.active_jobs.clear()
    assert submitted.numbers() == ["7"]


def test_a_job_that_could_not_be_submitted_is_none() -> None:
    executor = Executor()
    submitted = Submitted(executor)
    executor.report_job_error(Info("7"), msg="sbatch failed")
    assert submitted.numbers() == []
