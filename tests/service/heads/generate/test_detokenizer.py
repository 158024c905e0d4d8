"""Text increments: whole characters, and joined exactly what all bytes are."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from model.tokenizer import EOS, Tokenizer
from service.heads.generate.detokenizer import Detokenizer
from service.heads.generate.pieces import TokenPieces, as_label, as_text
from tests.service.generation_fakes import byte_level_tokenizer, fallback_tokenizer

TOKENIZERS = {"byte fallback": fallback_tokenizer(), "byte level": byte_level_tokenizer()}
PIECES = {name: TokenPieces(tokenizer) for name, tokenizer in TOKENIZERS.items()}

names = st.sampled_from(sorted(TOKENIZERS))
texts = st.text(st.sampled_from("aböß 你😀é\u0301.\n1"), max_size=20) | st.text(max_size=12)


def increments(pieces: TokenPieces, ids: Sequence[int], prompt: Sequence[int] = ()) -> list[str]:
    detokenizer = Detokenizer(pieces, prompt)
    return [*(detokenizer.push(token_id) for token_id in ids), detokenizer.flush()]


@given(names, texts, st.data())
def test_joined_increments_are_the_full_decode(name: str, text: str, data: st.DataObject) -> None:
    tokenizer = TOKENIZERS[name]
    ids = tokenizer.encode(text)
    cut = data.draw(st.integers(0, len(ids)))
    whole, prompt = tokenizer.decode(ids), tokenizer.decode(ids[:cut])
    found = increments(PIECES[name], ids[cut:], ids[:cut])
    if "\ufffd" not in prompt or "\ufffd" in text:  # else the prompt ends within a character
        assert prompt + "".join(found) == whole
    assert "".join(increments(PIECES[name], ids)) == whole


@given(names, texts)
def test_no_increment_has_a_part_of_a_character(name: str, text: str) -> None:
    tokenizer = TOKENIZERS[name]
    ids = tokenizer.encode(text.replace("\ufffd", ""))
    assert not any("\ufffd" in part for part in increments(PIECES[name], ids))


@given(st.lists(st.integers(0, byte_level_tokenizer().vocab_size - 1), max_size=30))
def test_any_tokens_of_a_byte_level_tokenizer(ids: list[int]) -> None:
    tokenizer = TOKENIZERS["byte level"]
    assert "".join(increments(PIECES["byte level"], ids)) == tokenizer.decode(ids)


@given(st.lists(st.integers(0, fallback_tokenizer().vocab_size - 1), max_size=30))
def test_what_was_said_is_never_taken_back(ids: list[int]) -> None:
    """Whatever follows, the text so far is its beginning, also where the library would decode all bytes anew."""
    pieces = PIECES["byte fallback"]
    whole = "".join(increments(pieces, ids))
    for length in range(len(ids)):
        assert whole.startswith("".join(increments(pieces, ids[:length])[:-1]))


def test_a_stray_byte_leaves_the_characters_before_it_alone() -> None:
    tokenizer = TOKENIZERS["byte fallback"]
    ids = [tokenizer.token_id(token) for token in ("<0xC3>", "<0xA9>", "<0xE2>")] + tokenizer.encode("a")
    assert tokenizer.decode(ids) == "��� a"
    assert increments(PIECES["byte fallback"], ids) == ["", "é", "", "� a", ""]


def test_a_character_that_is_never_completed() -> None:
    tokenizer = TOKENIZERS["byte fallback"]
    ids = [*tokenizer.encode("a"), tokenizer.token_id("<0xF0>"), tokenizer.token_id("<0x9F>")]
    assert increments(PIECES["byte fallback"], ids) == ["a", "", "", "�"]


@pytest.mark.parametrize("name", sorted(TOKENIZERS))
def test_special_and_unknown_tokens_are_no_part_of_the_text(name: str) -> None:
    tokenizer, pieces = TOKENIZERS[name], PIECES[name]
    end = tokenizer.token_id(EOS)
    ids = [end, *tokenizer.encode("a b"), end, tokenizer.vocab_size + 3, *tokenizer.encode(" c")]
    assert "".join(increments(pieces, ids)) == "a b c"
    assert pieces.surface(end, None) == EOS.encode()
    assert pieces.surface(tokenizer.vocab_size + 3, None) == b""


def test_a_word_after_a_prompt_keeps_its_space() -> None:
    tokenizer = TOKENIZERS["byte fallback"]
    prompt = tokenizer.encodings(["a b"])[0].ids
    assert "".join(increments(PIECES["byte fallback"], tokenizer.encode("c d"), prompt)) == " c d"
    assert "".join(increments(PIECES["byte fallback"], tokenizer.encode("c d"), [tokenizer.token_id("<s>")])) == "c d"


def test_an_added_token_that_the_alphabet_cannot_spell() -> None:
    copy = tokenizers.Tokenizer.from_str(byte_level_tokenizer()._backend.to_str())
    copy.add_tokens([tokenizers.AddedToken("  \n", normalized=False)])
    tokenizer = Tokenizer(copy)
    ids = tokenizer.encode("a  \nb")
    assert tokenizer.token_id("  \n") in ids
    assert "".join(increments(TokenPieces(tokenizer), ids)) == "a  \nb"


def test_labels() -> None:
    assert (as_text(b"\xf0\x9f"), as_label(b"\xf0\x9f")) == ("�", "bytes:\\xf0\\x9f")
    assert (as_text("é".encode()), as_label("é".encode())) == ("é", "é")
