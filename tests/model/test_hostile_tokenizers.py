"""Tokenizer files that fail on some text, or give ids that no model expects."""

from __future__ import annotations

import pytest
import tokenizers
from tokenizers import Regex, models, normalizers, pre_tokenizers, processors

from model.piece_tokenizer import PieceTokenizer
from model.tokenizer import TextCutError, Tokenizer, train

CATASTROPHIC = "(a|aa)+$"
"""Tries every way to part a row of "a" that something else follows."""


def with_expression(kind: str, expression: str = CATASTROPHIC) -> Tokenizer:
    backend = tokenizers.Tokenizer(models.WordLevel({"<unk>": 0, "a": 1}, unk_token="<unk>"))
    if kind == "split":
        backend.pre_tokenizer = pre_tokenizers.Split(Regex(expression), "isolated")
    else:
        backend.normalizer = normalizers.Replace(Regex(expression), "a")
    return Tokenizer(backend)


@pytest.mark.parametrize("kind", ["split", "replace"])
def test_an_expression_that_tries_too_much_is_an_error_of_ours(kind: str) -> None:
    tokenizer, text = with_expression(kind), "a" * 60 + "b"
    assert tokenizer.encode("b") == [0]
    for call in (
        lambda: tokenizer.encode(text),
        lambda: tokenizer.encode_batch([text, text]),
        lambda: tokenizer.encodings([text, text]),
        lambda: tokenizer.encodings([text]),
    ):
        with pytest.raises(TextCutError, match="cannot cut this text into tokens"):
            call()
    with pytest.raises(TextCutError):
        tokenizer.check()


def test_an_ordinary_tokenizer_passes_the_check() -> None:
    train(["a b c"], 300).check()
    with_expression("split", r"\s+").check()


def test_interrupts_are_no_panics(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted:
        def encode(self, *_: object, **__: object) -> None:
            raise KeyboardInterrupt

    tokenizer = with_expression("split")
    monkeypatch.setattr(tokenizer, "_backend", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        tokenizer.encode("a")


def test_the_largest_id_is_that_of_any_token_a_text_can_become() -> None:
    sparse = Tokenizer(tokenizers.Tokenizer(models.WordLevel({"<unk>": 0, "a": 70}, unk_token="<unk>")))
    assert (sparse.vocab_size, sparse.largest_id) == (2, 70)
    added = with_expression("split", "b")
    added.backend.post_processor = processors.TemplateProcessing(single="$A <end>", special_tokens=[("<end>", 900)])
    assert added.largest_id == 900
    assert PieceTokenizer(with_expression("split", "b").backend, {"a": 5}, unknown_id=9).largest_id == 9
