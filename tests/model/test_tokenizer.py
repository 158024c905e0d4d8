import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from model.tokenizer import EOS, SPECIAL_TOKENS, Tokenizer, TokenizerError, language_tag, train
from model.translation_format import OWN_FORMAT
from tests.model.samples import PAIRS, tiny_tokenizer

TOKENIZER = tiny_tokenizer()
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="▁"), max_size=40)


@settings(deadline=None, max_examples=200)
@given(ANY_TEXT)
@example("u\u0308")  # NFC joins the two; texts by chance hardly ever have such a pair
@example("u\u0323\u0308")  # ... orders marks
@example("\u1100\u1161\u11a8")  # ... composes Hangul
@example("\u212b \u2126")  # ... and has one sign for two that look alike
def test_any_text_comes_back_but_for_one_leading_space(text: str) -> None:
    ids = TOKENIZER.encode(text)
    assert TOKENIZER.decode(ids) == unicodedata.normalize("NFC", text).removeprefix(" ")
    assert TOKENIZER.token_id("<unk>") not in ids
    assert all(0 <= token_id < TOKENIZER.vocab_size for token_id in ids)


@settings(deadline=None, max_examples=20)
@given(st.lists(ANY_TEXT, max_size=5))
def test_a_batch_is_its_texts(texts: list[str]) -> None:
    assert TOKENIZER.encode_batch(texts) == [TOKENIZER.encode(text) for text in texts]


def test_unseen_characters_are_spelled_in_bytes() -> None:
    tokens = [TOKENIZER.token(token_id) for token_id in TOKENIZER.encode("語")]
    assert tokens[-3:] == ["<0xE8>", "<0xAA>", "<0x9E>"]
    assert TOKENIZER.decode(TOKENIZER.encode("🦜 x")) == "🦜 x"


def test_special_tokens_come_first_and_are_never_read_from_text() -> None:
    assert [TOKENIZER.token_id(token) for token in SPECIAL_TOKENS] == [0, 1, 2, 3]
    assert TOKENIZER.token_id(language_tag("de")) == 4
    for token in (*SPECIAL_TOKENS, "<2de>"):
        ids = TOKENIZER.encode(f"a {token} b")
        assert TOKENIZER.token_id(token) not in ids
        assert TOKENIZER.decode(ids) == f"a {token} b"


def test_special_tokens_are_left_out_of_decoded_text() -> None:
    ids = OWN_FORMAT.bind("de", "en", TOKENIZER, TOKENIZER).source_ids(TOKENIZER.encode("Der Hund"))
    assert ids[0] == TOKENIZER.token_id("<2en>")
    assert ids[-1] == TOKENIZER.token_id(EOS)
    assert TOKENIZER.decode(ids) == "Der Hund"


def test_an_encoding_has_the_characters_of_each_token() -> None:
    text = "the cat sat"
    (encoding,) = TOKENIZER.encodings([text])
    assert encoding.ids == TOKENIZER.encode(text)
    assert "".join(text[start:end] for start, end in encoding.offsets).replace(" ", "") == text.replace(" ", "")
    assert TOKENIZER.special_ids == {0, 1, 2, 3, 4, 5}
    assert TOKENIZER.decode([1, *encoding.ids, 2], skip_special_tokens=False) == "<s> the cat sat</s>"


@pytest.mark.parametrize("texts", [["the cat sat"], ["the cat sat", "a </s> b", "", "語 x1984"]])
def test_without_offsets_all_else_is_the_same(texts: list[str]) -> None:
    tokenizer = TOKENIZER.with_end()
    whole, fast = tokenizer.encodings(texts), tokenizer.encodings(texts, with_offsets=False)
    assert [encoding.ids for encoding in fast] == [encoding.ids for encoding in whole]
    assert [encoding.special_tokens_mask for encoding in fast] == [encoding.special_tokens_mask for encoding in whole]


def test_punctuation_and_digits_stand_alone() -> None:
    tokens = [TOKENIZER.token(token_id) for token_id in TOKENIZER.encode("Hund.")]
    assert tokens[-1] == "."
    # The digits stand in no training text, so they are bytes, and each is by itself.
    spelled = [TOKENIZER.token(token_id) for token_id in TOKENIZER.encode("x1984")]
    assert spelled[-4:] == ["<0x31>", "<0x39>", "<0x38>", "<0x34>"]


def test_saved_and_loaded_it_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    TOKENIZER.save(path)
    loaded = Tokenizer.load(path)
    text = "Der Hund 語 </s>"
    assert loaded.encode(text) == TOKENIZER.encode(text)
    assert loaded.decode(loaded.encode(text)) == text
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()


def test_training_is_deterministic(tmp_path: Path) -> None:
    tiny_tokenizer().save(tmp_path / "a.json")
    tiny_tokenizer().save(tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_wordpiece_reads_words_it_has_seen(tmp_path: Path) -> None:
    tokenizer = train((text for pair in PAIRS for text in pair), 300, "wordpiece")
    tokenizer.save(tmp_path / "tokenizer.json")
    tokenizer = Tokenizer.load(tmp_path / "tokenizer.json")
    assert tokenizer.decode(tokenizer.encode("Der Hund schläft.")) == "Der Hund schläft."
    assert tokenizer.vocab_size <= 300
    assert tokenizer.encode("語") == [tokenizer.token_id("<unk>")]
    pieces = [tokenizer.token(token_id) for token_id in tokenizer.encode("Hundschläft")]
    assert any(piece.startswith("##") for piece in pieces)


def test_errors_name_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"cannot read the tokenizer .*missing\.json: No such file"):
        Tokenizer.load(tmp_path / "missing.json")
    (tmp_path / "bad.json").write_text("{}", encoding="utf-8")
    with pytest.raises(TokenizerError, match=r"bad\.json is not a tokenizer\.json"):
        Tokenizer.load(tmp_path / "bad.json")
    with pytest.raises(TokenizerError, match="no token '<2fr>'"):
        TOKENIZER.token_id("<2fr>")
    with pytest.raises(TokenizerError, match=r"id 99999, allowed: 0 to \d+"):
        TOKENIZER.token(99_999)
    with pytest.raises(TokenizerError, match="kind is 'char', allowed: bpe, wordpiece"):
        train(["a"], 300, "char")  # type: ignore[arg-type]
    with pytest.raises(TokenizerError, match="vocab_size is 100, it must be above 260"):
        train(["a"], 100)
