"""What stands around a source and before a target, for the families that spell it differently."""

from __future__ import annotations

import pytest

from model.tokenizer import Tokenizer, TokenizerError, train
from model.translation_format import OWN_FORMAT, TranslationFormat, format_of

NLLB = TranslationFormat(
    source_prefix=("{source}",),
    source_suffix=("</s>",),
    decoder_start=("</s>",),
    target_prefix=("{target}",),
    spellings={"en": "eng_Latn", "de": "deu_Latn"},
)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train(["a b c"], 320, extra_tokens=["<2de>", "<2en>", "eng_Latn", "deu_Latn", ">>de<<"])


def tokens(tokenizer: Tokenizer, ids: tuple[int, ...]) -> list[str]:
    return [tokenizer.token(token_id) for token_id in ids]


def test_our_own_format_names_the_target_alone(tokenizer: Tokenizer) -> None:
    bound = OWN_FORMAT.bind("en", "de", tokenizer, tokenizer)
    text = tuple(tokenizer.encode("a b"))
    assert tokens(tokenizer, bound.source_ids(text)) == ["<2de>", *tokens(tokenizer, text), "</s>"]
    assert tokens(tokenizer, bound.target_ids) == ["<s>"]
    assert bound.num_source_tokens == 2


def test_both_languages_can_be_named_and_the_target_forced(tokenizer: Tokenizer) -> None:
    bound = NLLB.bind("en", "de", tokenizer, tokenizer)
    assert tokens(tokenizer, bound.source_ids(())) == ["eng_Latn", "</s>"]
    assert tokens(tokenizer, bound.target_ids) == ["</s>", "deu_Latn"]
    back = NLLB.bind("de", "en", tokenizer, tokenizer)
    assert tokens(tokenizer, (*back.source_ids(()), *back.target_ids)) == ["deu_Latn", "</s>", "</s>", "eng_Latn"]


def test_a_task_in_words_is_read_with_the_text(tokenizer: Tokenizer) -> None:
    spelled = TranslationFormat(
        text_prefix="translate {source} to {target}: ", spellings={"en": "English", "de": "German"}
    )
    assert spelled.bind("en", "de", tokenizer, tokenizer).text_prefix == "translate English to German: "


def test_braces_of_a_language_are_not_filled_again(tokenizer: Tokenizer) -> None:
    odd = TranslationFormat(text_prefix="{source}>{target}", spellings={"en": "{target}", "de": "x"})
    assert odd.bind("en", "de", tokenizer, tokenizer).text_prefix == "{target}>x"


def test_a_token_that_is_not_there_is_named(tokenizer: Tokenizer) -> None:
    with pytest.raises(TokenizerError, match="no token '<2fr>'"):
        OWN_FORMAT.bind("en", "fr", tokenizer, tokenizer)


def test_a_checkpoint_without_a_format_has_ours() -> None:
    assert format_of({"task": "translate"}) is OWN_FORMAT
    written = {"source_prefix": [">>{target}<<"], "source_suffix": [], "decoder_start": ["<pad>"]}
    assert format_of({"format": written}) == TranslationFormat(
        source_prefix=(">>{target}<<",), decoder_start=("<pad>",)
    )
    faulty: tuple[object, ...] = ({"prefix": []}, {"source_prefix": 3}, "x")
    for wrong in faulty:
        with pytest.raises(ValueError, match="is no format of a translation"):
            format_of({"format": wrong})
