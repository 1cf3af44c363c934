"""Third step of the synthetic problems: new values, the program's answer, the new question."""

from functools import partial

from instella.artifacts.job import Job
from instella.data.contamination import Guard
from instella.data.documents import Problem
from instella.recipe.settings import ValueStep
from instella.synthesis.replies import (
    Rejected,
    Row,
    check_answer,
    check_values,
    question_in,
    value_sets_in,
)
from instella.synthesis.rows import Outcome, is_unused, read_rows, run_step
from instella.synthesis.sandbox import Sandbox
from instella.synthesis.teacher import Teacher


def run(job: Job) -> None:
    """Write new problems, keyed ``PROBLEM/NUMBER``: ``values``, ``question``, ``answer``.

    Rounds of value sets go on until a problem has as many new ones as wanted. A new problem
    that holds a held-out item is rejected like any other.
    """
    if is_unused(job):
        return
    step: ValueStep = job.settings["step"]
    guard = Guard.from_folder(job.inputs["heldout"], job.settings["ngram"])
    programs = job.inputs["program"]
    total = sum(1 for _ in read_rows(programs))
    with Sandbox(filter_required=job.settings["teacher"].kind == "endpoint") as sandbox:

        def work(teacher: Teacher, problem: Row) -> Outcome:
            return _Variation(step, guard, sandbox, teacher, problem).run()

        run_step(job, read_rows(programs), total, work)


class _Variation:
    """The new problems of one problem."""

    def __init__(
        self, step: ValueStep, guard: Guard, sandbox: Sandbox, teacher: Teacher, problem: Row
    ) -> None:
        self.step = step
        self.guard = guard
        self.sandbox = sandbox
        self.teacher = teacher
        self.problem = problem
        self.outcome = Outcome()
        self.seen: list[Row] = [{item["name"]: item["value"] for item in problem["parameters"]}]

    def run(self) -> Outcome:
        """Up to ``rounds`` rounds of ``sets`` value sets."""
        for number in range(self.step.rounds):
            sets = self.outcome.accepted(partial(self._sets, number))
            for values in sets or []:
                if len(self.outcome.rows) >= self.step.wanted:
                    return self.outcome
                row = self.outcome.accepted(partial(self._new, values))
                if row is not None:
                    self.outcome.rows.append(row)
        return self.outcome

    def _sets(self, attempt: int) -> list[object]:
        reply = self.teacher.values(
            self.problem, self.step.sets, attempt, self.step.temperature, self.outcome.log
        )
        return value_sets_in(reply)[: self.step.sets]

    def _new(self, given: object) -> Row:
        values = check_values(given, self.problem["parameters"], self.seen)
        self.seen.append(values)
        verdict = self.sandbox.run(self.problem["program"], values, self.problem["key"])
        if verdict.value is None:
            raise Rejected("the program has no answer for the values")
        answer = check_answer(verdict.value)
        reply = self.teacher.reword(
            self.problem, values, self.step.reword_temperature, self.outcome.log
        )
        question = question_in(reply, values, self.problem["question"])
        key = f"{self.problem['key']}/{len(self.outcome.rows) + 1}"
        held = self.guard.holds(Problem(key, question, str(answer)))
        if held is not None:
            raise Rejected(f"held out: {held.partition('/')[0]}")
        return {
            "key": key,
            "problem": self.problem["key"],
            "values": values,
            "question": question,
            "answer": str(answer),
        }
