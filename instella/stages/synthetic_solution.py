"""Last step of the synthetic problems: a worked solution that ends in the program's answer.

``rows.jsonl`` is a source of documents: the adapter ``chat_rows`` reads its columns
``question`` and ``solution``, ``problem_rows`` its ``question`` and ``answer``.
"""

from fractions import Fraction

from instella.artifacts.job import Job
from instella.recipe.settings import Step
from instella.synthesis.replies import Row, solution_in
from instella.synthesis.rows import Outcome, is_unused, read_rows, run_step
from instella.synthesis.teacher import Teacher


def run(job: Job) -> None:
    """Write ``key``, ``question``, ``solution`` and ``answer`` of each solved problem."""
    if is_unused(job):
        return
    step: Step = job.settings["step"]
    problems = {row["key"]: row for row in read_rows(job.inputs["program"])}
    total = sum(1 for _ in read_rows(job.inputs["values"]))

    def work(teacher: Teacher, item: Row) -> Outcome:
        outcome = Outcome()
        problem, answer = problems[item["problem"]], Fraction(item["answer"])
        solution = outcome.first_accepted(
            step.attempts,
            lambda attempt: solution_in(
                teacher.solve(item, problem, attempt, step.temperature, outcome.log), answer
            ),
        )
        if solution is not None:
            kept = {name: item[name] for name in ("key", "question", "answer")}
            outcome.rows = [{**kept, "solution": solution}]
        return outcome

    run_step(job, read_rows(job.inputs["values"]), total, work)
