"""Second step of the synthetic problems: a program that gives the known answer."""

from fractions import Fraction

from instella.artifacts.job import Job
from instella.recipe.settings import Step
from instella.synthesis import quantities
from instella.synthesis.replies import Rejected, Row, code_in
from instella.synthesis.rows import Outcome, is_unused, read_rows, run_step
from instella.synthesis.sandbox import Sandbox
from instella.synthesis.teacher import Teacher


def run(job: Job) -> None:
    """Write each problem with a ``program`` whose result on its own values is its answer."""
    if is_unused(job):
        return
    step: Step = job.settings["step"]
    abstracts = job.inputs["abstract"]
    total = sum(1 for _ in read_rows(abstracts))
    # The rules' programs are this package's own; a model's run behind the filter or not at all.
    with Sandbox(filter_required=job.settings["teacher"].kind == "endpoint") as sandbox:

        def work(teacher: Teacher, problem: Row) -> Outcome:
            outcome = Outcome()

            def attempt(number: int) -> str:
                reply = teacher.program(problem, number, step.temperature, outcome.log)
                program = code_in(reply)
                check_program(program, problem, sandbox)
                return program

            program = outcome.first_accepted(step.attempts, attempt)
            if program is not None:
                outcome.rows = [{**problem, "program": program}]
            return outcome

        run_step(job, read_rows(abstracts), total, work)


def check_program(program: str, problem: Row, sandbox: Sandbox) -> None:
    """Run a program on the values of its problem.

    Raises:
        Rejected: it does not run, or its result is not the answer.
    """
    values = {item["name"]: item["value"] for item in problem["parameters"]}
    verdict = sandbox.run(program, values, problem["key"])
    if verdict.value is None:
        raise Rejected(f"program {verdict.outcome}: {reason_kind(verdict.reason)}")
    if quantities.rounded(verdict.value) != Fraction(problem["answer"]):
        raise Rejected("program gives another answer")


def reason_kind(reason: str) -> str:
    """A refusal without its line number, so that the report counts kinds of them."""
    place, _, rest = reason.partition(": ")
    return rest if place.startswith("line ") else reason
