"""A judge behind a server on the loopback: what it is asked, and what its replies become."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
from suites_helpers import FOLDER, ROOT

from instella.canonical import read_jsonl, write_jsonl
from instella.cli import main
from instella.data.chat import CHAT_TEMPLATE, prompt_ids
from instella.data.documents import Message
from instella.data.tokenizer import load, train_bpe, write_folder
from instella.errors import BadUse, VerificationError
from instella.evaluation.answers import answered
from instella.evaluation.judge import Judge, read_given, read_judgings
from instella.network.network import Instella
from instella.recipe.settings import Model, Tokenizer
from instella.rollout.generate import generate
from instella.synthesis.client import Client

QUESTIONS = [
    {"question_id": 1, "category": "writing", "turns": ["Write.", "Again."]},
    {"question_id": 2, "category": "math", "turns": ["1+1?", "2+2?"], "reference": ["2", "4"]},
    {"question_id": 3, "category": "writing", "turns": ["{answer}?", "Twice."]},
]
ANSWERS = {"1": ["a b c", "d"], "2": ["2", "five"], "3": ["{question}", "nothing"]}
PROMPTS = [
    {"name": "single-v1", "system_prompt": "Judge.", "prompt_template": "Q {question}\nA {answer}"},
    {"name": "single-v1-multi-turn", "system_prompt": "Judge.",
     "prompt_template": "Q {question_1}\nA {answer_1}\nQ {question_2}\nA {answer_2}"},
    {"name": "single-math-v1", "system_prompt": "",
     "prompt_template": "R {ref_answer_1}\nQ {question}\nA {answer}"},
    {"name": "single-math-v1-multi-turn", "system_prompt": "",
     "prompt_template": "R {ref_answer_1} {ref_answer_2}\nQ {question_2}\nA {answer_2}"},
    {"name": "alpaca_eval_clf", "system_prompt": "Compare.",
     "prompt_template": "{instruction}\nm {output_1}\nM {output_2}"},
]  # fmt: skip


class Server:
    """Gives a mark by the number of words of the last answer, and prefers the longer of two."""

    def __init__(self) -> None:
        self.asked: list[dict] = []
        self.keys: set[str] = set()
        self.fault = ""
        self.over = threading.Event()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def reply(self, body: dict) -> str:
        text = body["messages"][-1]["content"]
        if body["messages"][0]["content"] == "Compare.":
            first, second = text.split("\n")[1:]
            return "m" if len(first) > len(second) else " M."
        last = text.rpartition("\nA ")[2]
        return "I cannot say." if last == "nothing" else f"So [[{len(last.split()) + 0.5}]]"

    def go_wrong(self, handler: BaseHTTPRequestHandler) -> None:
        """What a server may do instead of giving a mark."""
        if self.fault == "hangs":
            self.over.wait(60)
            return
        empty = {"choices": [{"message": {"content": ""}, "finish_reason": "stop"}]}
        sent = {"huge": b" " * (5 << 20), "no JSON": b"<html>"}.get(
            self.fault, json.dumps(empty).encode()
        )
        handler.send_response({"fails": 500, "refuses": 404}.get(self.fault, 200))
        handler.send_header("Content-Length", str(len(sent)))
        handler.end_headers()
        with suppress(ConnectionError):  # who asked reads no more than is allowed
            handler.wfile.write(sent)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.asked.append(body)
                outer.keys.add(self.headers["Authorization"])
                if outer.fault:
                    return outer.go_wrong(self)
                choice = {"message": {"content": outer.reply(body)}, "finish_reason": "stop"}
                sent = json.dumps({"choices": [choice]}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(sent)))
                self.end_headers()
                self.wfile.write(sent)

            def log_message(self, *args: object) -> None:
                pass

        return Handler


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    made = Server()
    monkeypatch.setenv("INSTELLA_JUDGE_URL", made.url)
    monkeypatch.setenv("INSTELLA_JUDGE_KEY", "secret")
    yield made
    made.over.set()
    made.server.shutdown()
    made.server.server_close()


def given(folder: Path, name: str, rows: list[dict]) -> list[str]:
    """A file and its hash, as the command takes them."""
    write_jsonl(folder / name, rows)
    return [str(folder / name), hashlib.sha256((folder / name).read_bytes()).hexdigest()]


def answers_file(folder: Path, name: str, answers: dict[str, list[str]]) -> str:
    rows = [{"question_id": int(key), "turns": turns} for key, turns in answers.items()]
    return given(folder, name, rows)[0]


def ask(folder: Path, protocol: str, *more: str, questions=QUESTIONS, output="out") -> int:
    return main([
        "--config", str(ROOT / "config.yaml"), "evaluation", "judge", "ask", protocol,
        answers_file(folder, "answers.jsonl", ANSWERS), "--model", "a-judge",
        "--questions", *given(folder, "questions.jsonl", questions),
        "--prompts", *given(folder, "prompts.jsonl", PROMPTS),
        "--published", str(FOLDER), "--output", str(folder / output), *more,
    ])  # fmt: skip


def test_marks_of_both_turns(server, tmp_path, capsys):
    assert ask(tmp_path, "mt_bench") == 0
    records = read_jsonl(tmp_path / "out" / "records.jsonl")
    assert [record["verdicts"] for record in records] == [[3.5, 1.5], [1.5, 1.5], [1.5, None]]
    assert records[2]["figures"] == {"rating": [1.5, 1.0], "unjudged": [1.0, 2.0]}
    assert records[2]["replies"] == ["So [[1.5]]", "I cannot say."]
    printed = capsys.readouterr().out
    assert printed.startswith("rating 1.9000 [") and "3 questions, 1 replies without" in printed
    texts = {body["messages"][-1]["content"] for body in server.asked}
    assert texts == {
        "Q Write.\nA a b c", "Q Write.\nA a b c\nQ Again.\nA d", "R 2\nQ 1+1?\nA 2",
        "R 2 4\nQ 2+2?\nA five", "Q {answer}?\nA {question}",
        "Q {answer}?\nA {question}\nQ Twice.\nA nothing",
    }  # fmt: skip
    assert server.keys == {"Bearer secret"}
    assert {(b["model"], b["temperature"], b["max_tokens"]) for b in server.asked} == {
        ("a-judge", 0.0, 2048)
    }
    roles = [[message["role"] for message in body["messages"]] for body in server.asked]
    assert sorted(map(len, roles)) == [1, 1, 2, 2, 2, 2]


def test_a_transcript_gives_the_same_records(server, tmp_path, monkeypatch):
    assert ask(tmp_path, "mt_bench") == ask(tmp_path, "mt_bench") == 0
    assert len(server.asked) == 6
    monkeypatch.setenv("INSTELLA_JUDGE_URL", f"file:{tmp_path / 'out'}")
    assert ask(tmp_path, "mt_bench", output="again") == 0
    assert len(server.asked) == 6
    first, again = (tmp_path / name / "records.jsonl" for name in ("out", "again"))
    assert first.read_bytes() == again.read_bytes()


def test_the_better_of_two_whichever_is_shown_first(server, tmp_path, capsys):
    questions = [{"question_id": n, "turns": [f"question {n}"]} for n in range(12)]
    long = {str(n): ["a long answer"] for n in range(12)}
    short = {str(n): ["short"] for n in range(12)}
    for own, other, share in ((long, short, 1.0), (short, long, 0.0)):
        against = answers_file(tmp_path, "against.jsonl", other)
        ANSWERS_FILE = answers_file(tmp_path, "own.jsonl", own)
        code = main([
            "--config", str(ROOT / "config.yaml"), "evaluation", "judge", "ask", "alpaca_eval",
            ANSWERS_FILE, "--against", against, "--model", "a-judge",
            "--questions", *given(tmp_path, "questions.jsonl", questions),
            "--prompts", *given(tmp_path, "prompts.jsonl", PROMPTS),
            "--published", str(FOLDER), "--output", str(tmp_path / f"out{share}"),
        ])  # fmt: skip
        assert code == 0
        assert capsys.readouterr().out.startswith(f"pair {share:.4f} [")
    first = {body["messages"][-1]["content"].split("\n")[1] for body in server.asked}
    assert first == {"m a long answer", "m short"}


def test_the_share_at_equal_length(server, tmp_path, capsys):
    """The server takes the longer answer, and ours is longer in nine of twelve."""
    questions = [{"question_id": n, "turns": [f"question {n}"]} for n in range(12)]
    own = {str(n): ["x" * (20 + n)] for n in range(12)}
    other = {str(n): ["y" * (35 if n < 3 else 10 + 2 * n % 7)] for n in range(12)}
    rows = [f"{n},0.{n % 9}5,{(n % 5 - 2) / 2},{n % 4 - 1},False" for n in range(12)]
    gamed = tmp_path / "df_gamed.csv"
    head = "index,preference,std_delta_len,instruction_difficulty,not_gamed_baseline"
    gamed.write_text("\n".join([head, *rows]))
    digest = hashlib.sha256(gamed.read_bytes()).hexdigest()
    code = main([
        "--config", str(ROOT / "config.yaml"), "evaluation", "judge", "ask", "alpaca_eval",
        answers_file(tmp_path, "own.jsonl", own), "--model", "a-judge",
        "--against", answers_file(tmp_path, "against.jsonl", other),
        "--questions", *given(tmp_path, "questions.jsonl", questions),
        "--prompts", *given(tmp_path, "prompts.jsonl", PROMPTS), "--gamed", str(gamed), digest,
        "--published", str(FOLDER), "--output", str(tmp_path / "out"),
    ])  # fmt: skip
    assert code == 0
    plain, controlled = capsys.readouterr().out.splitlines()
    assert plain.startswith("pair 0.7500 [")
    assert controlled.startswith("length-controlled ")
    assert 0.3 < float(controlled.split()[1]) < 0.75
    records = read_jsonl(tmp_path / "out" / "records.jsonl")
    assert [record["verdicts"] for record in records] == [[0.0]] * 3 + [[1.0]] * 9


@pytest.mark.parametrize(
    ("change", "more", "words", "code"),
    [
        ({}, ("--against", "x"), "mt_bench: drop --against", 2),
        ({}, ("--gamed", "x", "0"), "mt_bench: drop --gamed", 2),
        ({"turns": ["a", "b", "c"]}, (), "not each of its 3 turns is answered", 2),
        ({"turns": "a"}, (), "has no turns", 2),
        ({"category": "math"}, (), "question 1: has no reference for each turn", 2),
    ],
)
def test_what_cannot_be_judged(server, tmp_path, capsys, change, more, words, code):
    questions = [QUESTIONS[0] | change, *QUESTIONS[1:]]
    assert ask(tmp_path, "mt_bench", *more, questions=questions) == code
    printed = capsys.readouterr().err
    assert words in printed and printed.count("\n") == 1 and not server.asked


def test_a_question_or_an_answer_that_stands_twice_is_refused(server, tmp_path, capsys):
    questions = [*QUESTIONS, QUESTIONS[0]]
    assert ask(tmp_path, "mt_bench", questions=questions) == 2
    assert "question 1: stands there twice; give each its own" in capsys.readouterr().err
    path = answers_file(tmp_path, "twice.jsonl", ANSWERS)
    write_jsonl(Path(path), [*read_jsonl(Path(path)), {"question_id": 1, "turns": ["a", "b"]}])
    code = main([
        "--config", str(ROOT / "config.yaml"), "evaluation", "judge", "ask", "mt_bench", path,
        "--model", "a-judge", "--questions", *given(tmp_path, "questions.jsonl", QUESTIONS),
        "--prompts", *given(tmp_path, "prompts.jsonl", PROMPTS), "--published", str(FOLDER),
        "--output", str(tmp_path / "out"),
    ])  # fmt: skip
    printed = capsys.readouterr().err
    assert code == 2 and "1: is answered twice" in printed and printed.count("\n") == 1
    assert not server.asked


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("refuses", "judge http://127.0.0.1"),
        ("empty", "none of the 6 replies holds a verdict"),
        ("hangs", "no reply (TimeoutError) after 8 tries"),
        ("no JSON", "a reply that is no chat completion after 8 tries"),
        ("fails", "status 500 after 8 tries"),
        ("huge", "a reply of more than 4194304 bytes after 8 tries"),
    ],
)
def test_a_judge_that_gives_no_mark_is_one_line(
    server, tmp_path, capsys, monkeypatch, fault, words
):
    """Repeats are announced on standard error; the last line says what is wrong."""
    silence = 0.3 if fault == "hangs" else 60.0
    monkeypatch.setattr(Client.__init__, "__defaults__", (silence, 0.0, "teacher"))
    server.fault = fault
    assert ask(tmp_path, "mt_bench") == (2 if fault == "refuses" else 1)
    last = capsys.readouterr().err.splitlines()[-1]
    assert words in last and "secret" not in last
    assert not (tmp_path / "out" / "records.jsonl").exists() or fault == "empty"


def test_other_files_than_those_meant_are_refused(tmp_path):
    place, digest = given(tmp_path, "prompts.jsonl", PROMPTS)
    assert len(read_given(Path(place), digest)) == len(PROMPTS)
    with pytest.raises(VerificationError, match=f"SHA-256 is {digest}, not 00"):
        read_given(Path(place), "00")
    protocol = read_judgings(FOLDER)["mt_bench"]
    with pytest.raises(BadUse, match="none is called single-math-v1; give the file"):
        Judge(protocol, [row for row in PROMPTS if row["name"] != "single-math-v1"], "m")
    odd = [row | {"prompt_template": "{style}"} for row in PROMPTS]
    with pytest.raises(BadUse, match="asks for style, which the questions do not give"):
        Judge(protocol, odd, "m").requests(QUESTIONS[0], ["a", "b"], ())


def test_a_mark_outside_the_scale_is_none(tmp_path):
    judge = Judge(read_judgings(FOLDER)["mt_bench"], PROMPTS, "m")
    replies = ["[[11]]", "[[10]]"]
    assert judge.record(QUESTIONS[0], replies)["verdicts"] == [None, 10.0]


def test_answers_go_on_from_those_before(tmp_path):
    write_folder(tmp_path, train_bpe(["x"], Tokenizer("bpe", vocab_size=300)), 0, 1, CHAT_TEMPLATE)
    encoder = load(tmp_path)
    shape = Model(hidden_size=32, intermediate_size=48, num_hidden_layers=1,
                  num_attention_heads=2, vocab_size=272, max_position_embeddings=160)  # fmt: skip
    network = Instella(shape, "portable-x86").eval()
    generator = np.random.Generator(np.random.PCG64(6))
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() == 2:
                values = generator.integers(-128, 128, parameter.shape) / 256.0
                parameter.copy_(torch.from_numpy(values.astype(np.float32)))
    questions = [["Hello", "More?"], ["One turn"], ["Another", "and", "a third"]]
    found = answered(network, encoder, questions, 6)
    assert [len(own) for own in found] == [2, 1, 3]
    # Alone, and the last turn by hand.
    assert [answered(network, encoder, [turns], 6)[0] for turns in questions] == found
    history = [Message("user", "Hello"), Message("assistant", found[0][0])]
    prompt = prompt_ids("More?", encoder, history)
    ((response,),) = generate(
        network, [prompt], samples=1, max_new_tokens=6, temperature=0.0, top_p=1.0, eos_id=0,
        vocabulary=encoder.vocab_size, max_prompt_tokens=len(prompt), stream=[("x",)],
    )  # fmt: skip
    assert encoder.decode(i for i in response.ids if i) == found[0][1]
    with pytest.raises(BadUse, match="lower --max-new-tokens"):
        answered(network, encoder, questions, 150)
