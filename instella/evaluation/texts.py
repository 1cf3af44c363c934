"""Which tokens of a text are predicted; the model and the unigram baseline share it."""

from instella.data.tokenizer import Encoder


def text_ids(encoder: Encoder, text: str, length: int) -> list[int]:
    """End-of-text, the text, end-of-text, cut to ``length`` ids."""
    return [encoder.eos_id, *encoder.encode(text), encoder.eos_id][:length]
