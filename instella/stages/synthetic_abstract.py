"""First step of the synthetic problems: the numbers of a problem become parameters."""

from collections.abc import Iterator

from instella.artifacts.job import Job
from instella.data.adapters import read
from instella.data.contamination import Guard
from instella.data.documents import Conversation, Document
from instella.data.select import select
from instella.errors import BadUse
from instella.recipe.settings import Step
from instella.synthesis import quantities
from instella.synthesis.replies import Row, abstraction_in
from instella.synthesis.rows import Outcome, is_unused, run_step
from instella.synthesis.teacher import Teacher


def run(job: Job) -> None:
    """Write each problem with ``template`` and ``parameters`` that give it back.

    A problem is lost before anything is asked when it holds a held-out item, has no final
    number, or is beyond all measure.
    """
    if is_unused(job):
        return
    step: Step = job.settings["step"]
    guard = Guard.from_folder(job.inputs["heldout"], job.settings["ngram"])

    def work(teacher: Teacher, row: Row) -> Outcome:
        outcome = Outcome()
        conversation = row["document"]
        outcome.lost = _unusable(conversation, guard)
        if outcome.lost:
            return outcome
        problem = _problem(row["key"], conversation)
        accepted = outcome.first_accepted(
            step.attempts,
            lambda attempt: abstraction_in(
                teacher.abstract(problem, attempt, step.temperature, outcome.log),
                problem["question"],
            ),
        )
        if accepted is not None:
            template, parameters = accepted
            outcome.rows = [{**problem, "template": template, "parameters": parameters}]
        return outcome

    run_step(job, _documents(job), None, work)


def _documents(job: Job) -> Iterator[Row]:
    for part in job.settings["problems"]:
        for document in select(read(part, job.inputs[f"source_{part.source}"]), part):
            _check(document, part.source)
            yield {"key": f"{part.source}/{document.key}", "document": document}


def _check(document: Document, source: str) -> None:
    roles = [m.role for m in document.messages] if isinstance(document, Conversation) else []
    if roles != ["user", "assistant"]:
        raise BadUse(
            f"source {source}, {document.key}: a problem to start from needs a question and its "
            "worked solution; choose an adapter that gives one turn of each"
        )


def _unusable(conversation: Conversation, guard: Guard) -> str | None:
    held = guard.holds(conversation)
    if held is not None:
        return f"held out: {held.partition('/')[0]}"
    question, solution = (message.content for message in conversation.messages)
    if not quantities.is_ordinary(question) or not quantities.is_ordinary(solution):
        return "too long"
    if not quantities.PATTERN.search(question) or quantities.last_number(solution) is None:
        return "no number"
    return None


def _problem(key: str, conversation: Conversation) -> Row:
    question, solution = (message.content for message in conversation.messages)
    gold = quantities.last_number(solution)
    assert gold is not None
    answer = quantities.written(gold)
    return {"key": key, "question": question, "solution": solution, "answer": answer}
