"""The jobs for which Snakemake waits, as its executor for SLURM submits and ends them.

The executor takes its list of jobs away while it asks for their states, and where no answer came
it does not put them back: it would never ask for them again, and Snakemake would wait for ever.
"""

import threading
from collections.abc import AsyncIterator, Callable
from typing import Any


class Submitted:
    """Keeps its own list of an executor's jobs, and gives back to it those that it loses.

    Made before the first job is submitted, it stands between Snakemake and four methods of the
    executor (snakemake_interface_executor_plugins, RemoteExecutor).

    Args:
        executor: of the run.
    """

    def __init__(self, executor: Any) -> None:
        self._executor = executor
        self._lock = threading.Lock()
        # By identity: an attempt that is repeated is another submission of the same job.
        self._jobs: dict[int, Any] = {}
        self._check = executor.check_active_jobs
        executor.check_active_jobs = self._check_all
        executor.report_job_submission = self._then(executor.report_job_submission, self._add)
        executor.report_job_success = self._then(executor.report_job_success, self._remove)
        executor.report_job_error = self._then(executor.report_job_error, self._remove)

    def numbers(self) -> list[str]:
        """SLURM's numbers of all jobs that were submitted and not reported as ended."""
        with self._lock:
            return [str(job.external_jobid) for job in self._jobs.values()]

    def _add(self, job: Any) -> None:
        with self._lock:
            self._jobs[id(job)] = job

    def _remove(self, job: Any) -> None:
        with self._lock:
            self._jobs.pop(id(job), None)

    def _then(self, report: Callable[..., None], note: Callable[[Any], None]) -> Any:
        """The executor's method, after which its job is noted here."""

        def noted(job: Any, *words: Any, **named: Any) -> None:
            note(job)
            report(job, *words, **named)

        return noted

    async def _check_all(self, asked: list[Any]) -> AsyncIterator[Any]:
        """The executor's check, and after it those jobs of which it said nothing."""
        told = set()
        async for job in self._check(asked):
            told.add(id(job))
            yield job
        with self._lock:
            lost = [job for job in asked if id(job) in self._jobs and id(job) not in told]
        for job in lost:
            yield job
