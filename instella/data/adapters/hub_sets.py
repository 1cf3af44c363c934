"""The data sets of the published recipe: one entry each, to be held against its card.

Every adapter of this table takes the option ``files`` (patterns, default all row files).
Where a fact comes from:

R, M   the scripts of AMD's repositories (see recipes/instella-3b.yaml) read these columns
card   the data set's public card or file list
dolma  the dolma toolkit's documented row, which R tokenizes with
known  general knowledge, to be confirmed when the data set's lock is made
"""

from dataclasses import dataclass

from instella.data.adapters.turns import TurnForm

PLAIN_TURNS = TurnForm()


@dataclass(frozen=True)
class HubSet:
    """One data set, or several of one shape.

    Attributes:
        repositories: on the hub; for errors and readers.
        form: ``text`` (columns: text), ``chat`` (turns), ``exchange`` (question, answer),
            ``preference`` (turns of the chosen and of the rejected conversation) or
            ``problem`` (question, answer).
        columns: those of the form, in its order; all must hold a value of its type in
            every row. Other columns are not read.
        identity: the column with the row's own identity, a text or a whole number.
        turns: the fields of a turn.
        cut_before: an ``exchange``'s answer ends before the first such text.
        english_only: rows whose first turn is not English are dropped.
        hint: what a wrong row may come from.
    """

    repositories: tuple[str, ...]
    form: str
    columns: tuple[str, ...]
    identity: str | None = None
    turns: TurnForm = PLAIN_TURNS
    cut_before: str | None = None
    english_only: bool = False
    hint: str = ""


HUB_SETS: dict[str, HubSet] = {
    # dolma (id, text); packing by card and R: .json.gz, .jsonl, .jsonl.gz, .jsonl.zst and
    # .json.zst with one row a line.
    "dolma_text": HubSet(
        ("allenai/OLMoE-mix-0924", "allenai/dolmino-mix-1124"), "text", ("text",), identity="id"
    ),
    # card: the rows have blob_id, repo_name, path, length_bytes, score, int_score and no text.
    "python_edu": HubSet(
        ("HuggingFaceTB/smollm-corpus",),
        "text",
        ("text",),
        identity="blob_id",
        hint="the subset python-edu as published holds blob_id (Software Heritage) and no texts: "
        "fetch them as its card says, pin the files as a source of kind file, rows of blob_id "
        "and text, and read that source",
    ),
    # R: dm_maths/full_data_{1,2}/*.jsonl.gz; known: text.
    "dm_maths": HubSet(("LLM360/TxT360",), "text", ("text",)),
    # R: personas have prompt, id, messages, constraints; known: the mixture has id, messages,
    # source.
    "tulu3": HubSet(
        ("allenai/tulu-3-sft-mixture", "allenai/tulu-3-sft-personas-instruction-following"),
        "chat",
        ("messages",),
        identity="id",
    ),
    # R: conversations of from (human, gpt, system) and value; known: one JSON array.
    "openhermes": HubSet(
        ("teknium/OpenHermes-2.5",),
        "chat",
        ("conversations",),
        turns=TurnForm("from", "value", {"human": "user", "gpt": "assistant", "system": "system"}),
    ),
    # R: question, answer; known: orig_question and orig_answer beside them are not used.
    "webinstruct_sub": HubSet(("TIGER-Lab/WebInstructSub",), "exchange", ("question", "answer")),
    # R: messages.
    "code_feedback": HubSet(("m-a-p/Code-Feedback",), "chat", ("messages",)),
    # R: messages, split train_sft; known: prompt, prompt_id.
    "ultrachat": HubSet(
        ("HuggingFaceH4/ultrachat_200k",), "chat", ("messages",), identity="prompt_id"
    ),
    # R: messages, split train_119K.
    "gsm8k_synthetic": HubSet(("amd/Instella-GSM8K-synthetic",), "chat", ("messages",)),
    # R: source, messages.
    "smoltalk": HubSet(("HuggingFaceTB/smoltalk",), "chat", ("messages",)),
    # R: problem, generated_solution; splits train_1M and train.
    "openmathinstruct2": HubSet(
        ("nvidia/OpenMathInstruct-2",), "exchange", ("problem", "generated_solution")
    ),
    # R: question, longCOT, cut before the line that begins with four number signs.
    "o1_journey": HubSet(
        ("GAIR/o1-journey",), "exchange", ("question", "longCOT"), cut_before="\n####"
    ),
    # known: chosen and rejected are lists of role and content.
    "olmo2_preferences": HubSet(
        ("allenai/olmo-2-1124-7b-preference-mix",), "preference", ("chosen", "rejected")
    ),
    # M: messages of role, content and info; filter on the first message.
    "am_deepseek": HubSet(
        ("a-m-team/AM-DeepSeek-R1-Distilled-1.4M",), "chat", ("messages",), english_only=True
    ),
    # M: problem, answer.
    "big_math": HubSet(("SynthLabsAI/Big-Math-RL-Verified",), "problem", ("problem", "answer")),
    # M: question, final_answer.
    "deepmath": HubSet(("zwhe99/DeepMath-103K",), "problem", ("question", "final_answer")),
    # M: problem, answer.
    "deepscaler": HubSet(
        ("agentica-org/DeepScaleR-Preview-Dataset",), "problem", ("problem", "answer")
    ),
}
