"""The encoder and the files that transformers reads."""

import json
import os
import subprocess
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

from instella.canonical import read_json, write_json
from instella.data.tokenizer import Encoder, load, to_uint16
from instella.errors import VerificationError

NASTY = (
    "",
    " ",
    "plain",
    "a\r\nb\r\n",
    "nul \x00 inside",
    "👩‍🚀 🙂🏽 flags 🇩🇪",
    "עברית and العربية \u200f\u202e",
    "e\u0301 is é and Å is A\u030a",
    "\u2003wide\u00a0blank\u3000",
    "<|endoftext|> and <|padding|> <|user|>\n",
    "<|end" + "oftext|> ||  <|endoftext",
    "   many     blanks                              here\t\t",
    "\u2028line\u2029paragraph\u0085next\ufeff",
    "\\boxed{\\frac{1}{2}} 0123456789 ½ ²",
)


@pytest.mark.parametrize("name", ["learned", "published"])
@pytest.mark.parametrize("text", NASTY)
def test_decoding_gives_the_text_in_nfc(
    name: str, text: str, request: pytest.FixtureRequest
) -> None:
    encoder: Encoder = request.getfixturevalue(name)
    assert encoder.decode(encoder.encode(text)) == unicodedata.normalize("NFC", text)


@pytest.mark.parametrize("name", ["learned", "published"])
def test_special_tokens_in_text_become_their_ids(name: str, request: pytest.FixtureRequest) -> None:
    encoder: Encoder = request.getfixturevalue(name)
    ids = encoder.encode("a<|endoftext|>b<|padding|>")
    assert ids.count(encoder.eos_id) == 1
    assert ids[-1] == encoder.pad_id
    assert (encoder.eos_id, encoder.pad_id) == (0, 1)


def test_published_ids(published: Encoder) -> None:
    assert published.vocab_size == 50_280
    assert published.encode("<|user|>\n") == [29, 93, 4537, 49651, 187]
    assert published.encode("<|assistant|>\n") == [29, 93, 515, 5567, 49651, 187]
    assert published.encode("<think>") == [29, 18959, 31]
    assert published.encode("</think>") == [870, 18959, 31]


def test_batches_equal_single_texts(learned: Encoder) -> None:
    texts = list(NASTY) * 20
    single = [learned.encode(text) for text in texts]
    for size in (1, 64, 1000):
        blocks = [texts[first : first + size] for first in range(0, len(texts), size)]
        assert [ids for block in blocks for ids in learned.encode_batch(block)] == single


@pytest.mark.parametrize("threads", ["1", "2"])
def test_batches_do_not_depend_on_threads(
    learned: Encoder, learned_folder: Path, threads: str
) -> None:
    code = (
        "import json, sys\n"
        "from pathlib import Path\n"
        "from instella.data.tokenizer import load\n"
        "texts = json.load(sys.stdin)\n"
        "print(json.dumps(load(Path(sys.argv[1])).encode_batch(texts)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(learned_folder)],
        input=json.dumps(list(NASTY) * 20),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "RAYON_NUM_THREADS": threads, "TOKENIZERS_PARALLELISM": "1"},
        cwd=Path(__file__).resolve().parents[2],
    )
    assert json.loads(done.stdout) == learned.encode_batch(list(NASTY) * 20)


@pytest.mark.parametrize("name", ["learned_folder", "published_folder"])
def test_transformers_reads_the_same_tokenizer(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    folder: Path = request.getfixturevalue(name)
    encoder = load(folder)
    theirs = AutoTokenizer.from_pretrained(folder)
    assert (theirs.bos_token_id, theirs.eos_token_id, theirs.pad_token_id) == (0, 0, 1)
    assert len(theirs) == encoder.vocab_size
    theirs.save_pretrained(tmp_path)
    for reader in (theirs, AutoTokenizer.from_pretrained(tmp_path)):
        for text in NASTY:
            assert reader(text)["input_ids"] == encoder.encode(text)
            assert reader.decode(encoder.encode(text)) == encoder.decode(encoder.encode(text))


def test_ids_beyond_uint16_are_refused(broken_folder: Path) -> None:
    fields = read_json(broken_folder / "tokenizer.json")
    fields["model"]["vocab"]["zz"] = 65_536
    write_json(broken_folder / "tokenizer.json", fields)
    with pytest.raises(VerificationError, match="largest id 65536 does not fit uint16"):
        load(broken_folder)


@pytest.mark.parametrize("ids", [[65_536], [-1], [3, 70_000]])
def test_arrays_refuse_ids_beyond_uint16(ids: list[int]) -> None:
    with pytest.raises(VerificationError, match="do not fit uint16"):
        to_uint16(ids)


def test_largest_id_fits() -> None:
    assert to_uint16([0, 65_535]).tolist() == [0, 65_535]
    assert to_uint16([]).dtype == np.uint16


def test_random_merges_are_refused(broken_folder: Path) -> None:
    fields = read_json(broken_folder / "tokenizer.json")
    fields["model"]["dropout"] = 0.1
    write_json(broken_folder / "tokenizer.json", fields)
    with pytest.raises(VerificationError, match="dropout"):
        load(broken_folder)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("tokenizer.json", b"[]", "no tokenizer"),
        ("tokenizer.json", b'{"model":{"type":"Nothing"}}', "not a tokenizer of the library"),
        ("tokenizer.json", b"\xff", "not canonical JSON"),
        ("special_tokens_map.json", b"{}", "must be texts"),
        (
            "special_tokens_map.json",
            b'{"eos_token":"the","pad_token":"<|padding|>"}',
            "'the' is not a special token",
        ),
    ],
)
def test_broken_files_are_refused(
    broken_folder: Path, name: str, data: bytes, message: str
) -> None:
    (broken_folder / name).write_bytes(data)
    with pytest.raises(VerificationError, match=message):
        load(broken_folder)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(VerificationError, match=r"no tokenizer\.json"):
        load(tmp_path)


def test_lone_surrogates_are_refused(learned: Encoder) -> None:
    with pytest.raises(VerificationError, match="lone surrogate at character 1"):
        learned.encode("a\ud83d")
    with pytest.raises(VerificationError, match="lone surrogate"):
        learned.encode_batch(["fine", "\ud83d"])


def test_truncation_and_padding_of_the_file_are_ignored(broken_folder: Path) -> None:
    fields = read_json(broken_folder / "tokenizer.json")
    fields["truncation"] = {
        "direction": "Right",
        "max_length": 2,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    write_json(broken_folder / "tokenizer.json", fields)
    assert len(load(broken_folder).encode("a b c d e f")) > 2


def test_transformers_needs_no_model_class_of_the_folder(broken_folder: Path) -> None:
    write_json(broken_folder / "config.json", {"model_type": "instella", "vocab_size": 400})
    theirs = AutoTokenizer.from_pretrained(broken_folder)
    assert theirs("the spider")["input_ids"] == load(broken_folder).encode("the spider")
