from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.tokenizer import BOS, EOS
from service.heads.attend.tokens import Token, TokenSequence, encoded_tokens, generated_tokens, group_words
from tests.service.embed_fakes import embed_tokenizer

TOKENIZER = embed_tokenizer()


def read(*texts: str) -> TokenSequence:
    (encoding,) = TOKENIZER.encodings([texts[0] if len(texts) == 1 else (texts[0], texts[1])])
    return TokenSequence(texts, encoded_tokens(encoding, texts))


def spelled(sequence: TokenSequence, token: Token) -> str | None:
    if token.start is None or token.text_index is None:
        return None
    return sequence.texts[token.text_index][token.start : token.end]


def test_tokens_have_their_places_and_special_ones_have_none() -> None:
    sequence = read("the house is old.")
    first, *middle, last = sequence.tokens
    assert (first.text, first.special, first.start, first.end, first.text_index) == (BOS, True, None, None, None)
    assert (last.text, last.special) == (EOS, True)
    assert all(spelled(sequence, token) == token.text.strip() for token in middle)
    assert "".join(str(spelled(sequence, token)) for token in middle) == "thehouseisold."
    assert list(sequence.ids) == TOKENIZER.encodings(["the house is old."])[0].ids


def test_a_character_of_several_tokens_is_the_place_of_each() -> None:
    sequence = read("a 😀")
    spans = [(token.start, token.end) for token in sequence.tokens if token.text == "😀"]
    assert spans == [(2, 3)] * 4


def test_generated_tokens_have_the_places_that_an_encoding_gives_them() -> None:
    text = "Guten Morgen, 😀 mein Freund."
    (encoding,) = TOKENIZER.encodings([text], add_special_tokens=False)
    found, tokens = generated_tokens(TOKENIZER, encoding.ids)
    assert found == text
    assert tokens == encoded_tokens(encoding, (text,))


def test_generated_tokens_go_on_from_a_prompt() -> None:
    prompt = read("the house")
    ids = TOKENIZER.encode("is old")
    text, tokens = generated_tokens(TOKENIZER, ids, prompt.ids, "the house")
    assert text == "the house is old"
    assert tokens[0].start == len("the house ")
    assert all(text[token.start : token.end] == token.text for token in tokens)


def test_a_special_token_in_an_output_has_no_place() -> None:
    ids = [*TOKENIZER.encode("a"), TOKENIZER.token_id(EOS), *TOKENIZER.encode("b")]
    text, tokens = generated_tokens(TOKENIZER, ids)
    assert text == "a b"
    assert tokens[1] == Token(TOKENIZER.token_id(EOS), EOS, special=True)


def test_a_character_that_is_never_completed_is_replaced() -> None:
    text, tokens = generated_tokens(TOKENIZER, [TOKENIZER.token_id("<0xF0>")])
    assert text == "\ufffd"
    assert (tokens[0].start, tokens[0].end) == (0, 1)


@settings(deadline=None, max_examples=40)
@given(st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=30))
def test_every_place_is_inside_the_text(text: str) -> None:
    for sequence in (read(text), TokenSequence(*_generated(text))):
        for token in sequence.tokens:
            if token.start is not None and token.end is not None and token.text_index is not None:
                assert 0 <= token.start <= token.end <= len(sequence.texts[token.text_index])


def _generated(text: str) -> tuple[tuple[str], tuple[Token, ...]]:
    found, tokens = generated_tokens(TOKENIZER, TOKENIZER.encode(text))
    return (found,), tokens


def test_pieces_make_words_and_special_tokens_stand_alone() -> None:
    sequence = read("the housing, is")
    grouped = group_words(sequence)
    assert [word.text for word in grouped.words.tokens] == [BOS, "the", "housing", ",", "is", EOS]
    assert [number for group in grouped.groups for number in group] == list(range(len(sequence)))
    housing = grouped.words.tokens[2]
    assert (housing.start, housing.end, housing.id) == (4, 11, None)
    assert len(grouped.groups[2]) > 1
    kept = grouped.without_specials()
    assert [word.text for word in kept.words.tokens] == ["the", "housing", ",", "is"]
    assert kept.groups == grouped.groups[1:-1]


def test_the_same_word_in_both_texts_of_a_pair_is_two_words() -> None:
    sequence = TokenSequence(("a", "a"), (Token(1, "a", 0, 1, text_index=0), Token(1, "a", 0, 1, text_index=1)))
    assert group_words(sequence).groups == ((0,), (1,))


@pytest.mark.parametrize("text", ["the 😀 key", "日本"])
def test_tokens_of_one_character_are_one_word(text: str) -> None:
    words = [word.text for word in group_words(read(text)).without_specials().words.tokens]
    assert "".join(words) == text.replace(" ", "")
    assert len(words) == (3 if " " in text else 2)
