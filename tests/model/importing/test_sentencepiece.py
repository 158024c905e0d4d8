"""SentencePiece models as tokenizer.json: the same pieces as the library's, in thousands of lines of many scripts."""

from __future__ import annotations

import functools
import re
import tempfile
import unicodedata
from pathlib import Path
from typing import Any

import babel
import pytest
import sentencepiece
import tokenizers
from babel.localedata import locale_identifiers
from hypothesis import given, settings
from hypothesis import strategies as st

from model.importing.options import ModelImportError
from model.importing.sentencepiece import tokenizer_of
from model.piece_tokenizer import PieceTokenizer
from model.tokenizer import TokenizerError
from tests.model.importing.seq2seq import pieces_of, sentencepiece_model

MODELS: dict[str, dict[str, Any]] = {
    "unigram": {"kind": "unigram"},
    "bpe": {"kind": "bpe"},
    "bytes": {"kind": "unigram", "vocab_size": 400, "byte_fallback": True},
    "identity": {"kind": "unigram", "normalization_rule_name": "identity"},
    "nfkc-folded": {"kind": "bpe", "normalization_rule_name": "nfkc_cf"},
    "spaces": {"kind": "unigram", "remove_extra_whitespaces": False},
}


@functools.cache
def names_in_many_scripts() -> list[str]:
    """What CLDR calls languages, countries and months, in every language that has names of its own: 36 scripts."""
    lines: dict[str, None] = {}
    for identifier in sorted(locale_identifiers()):
        if re.fullmatch("[a-z]{2,3}(_[A-Z][a-z]{3})?", identifier):
            locale = babel.Locale.parse(identifier)
            words = [*list(locale.languages.values())[:12], *list(locale.territories.values())[:12]]
            words += [str(word) for word in locale.months["format"]["wide"].values()]
            lines |= dict.fromkeys(" ".join(words[start : start + 3]) for start in range(0, len(words), 3))
    return list(lines)


@pytest.mark.parametrize("name", MODELS)
def test_pieces_are_those_of_the_library(name: str, tmp_path: Path) -> None:
    model = sentencepiece_model(**MODELS[name])
    (tmp_path / "model").write_bytes(model)
    theirs, ours = sentencepiece.SentencePieceProcessor(model_proto=model), tokenizer_of(tmp_path / "model")
    lines = names_in_many_scripts()
    assert len(lines) > 2000
    wanted = theirs.encode(lines)
    found = [encoding.ids for encoding in ours.encode_batch(lines, add_special_tokens=False)]
    differing = [line for line, left, right in zip(lines, wanted, found, strict=True) if left != right]
    # The library of `tokenizer.json` takes a letter and its marks as one where Unicode has no such letter.
    marked = [line for line in differing if any(map(unicodedata.combining, unicodedata.normalize("NFC", line)))]
    assert differing == marked
    assert len(differing) <= (len(lines) // 100 if name == "nfkc-folded" else 0)


@pytest.mark.parametrize("name", ["unigram", "bpe"])
@given(text=st.text("Thedogslp.,!  éÄß漢字ﬁ①\u3000\u00a0", max_size=30))
@settings(max_examples=200, deadline=None)
def test_pieces_are_those_of_the_library_for_texts_by_chance(name: str, text: str) -> None:
    theirs, ours = _both(name)
    assert ours.encode(text, add_special_tokens=False).ids == theirs.encode(text)


@functools.cache
def _both(name: str) -> tuple[sentencepiece.SentencePieceProcessor, tokenizers.Tokenizer]:
    model = sentencepiece_model(**MODELS[name])
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(model)
        return sentencepiece.SentencePieceProcessor(model_proto=model), tokenizer_of(Path(file.name))


@pytest.mark.parametrize("name", ["unigram", "bpe", "bytes"])
def test_a_text_comes_back_from_its_pieces(name: str, tmp_path: Path) -> None:
    model = sentencepiece_model(**MODELS[name])
    (tmp_path / "model").write_bytes(model)
    backend = tokenizer_of(tmp_path / "model")
    for text in ("Der Hund schläft.", "Where is the station?", "I see two trees."):
        assert backend.decode(backend.encode(text, add_special_tokens=False).ids) == text


def test_ids_are_those_of_the_other_file(tmp_path: Path) -> None:
    model = sentencepiece_model()
    (tmp_path / "model").write_bytes(model)
    pieces = pieces_of(model)
    ids = {piece: 500 - index for index, piece in enumerate(pieces) if index % 7 != 6} | {"<pad>": 501, "<unk>": 3}
    tokenizer = PieceTokenizer(tokenizer_of(tmp_path / "model", ["<pad>"]), ids, 3)
    tokenizer.save(tmp_path / "tokenizer.json")
    tokenizer.save_pieces(tmp_path / "pieces.json")
    loaded = PieceTokenizer.load_pieces(tmp_path / "tokenizer.json", tmp_path / "pieces.json")
    text = "The cat drinks the milk."
    wanted = [
        ids.get(piece, 3)
        for piece in sentencepiece.SentencePieceProcessor(model_proto=model).encode(text, out_type=str)
    ]
    assert loaded.encode(text) == loaded.encode_batch([text, "x"])[0] == wanted
    assert 3 in wanted
    whole = [token_id for token_id in wanted if token_id != 3]
    assert loaded.decode([501, *whole, loaded.token_id("</s>")]) == loaded.decode(whole)
    assert loaded.encode("</s><pad>").count(501) == 0
    assert loaded.vocab_size == 502
    with pytest.raises(TokenizerError, match="no token 'nothing'"):
        loaded.token_id("nothing")


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    for content in (b"", b"version https://git-lfs.github.com/spec/v1\n"):
        (tmp_path / "model").write_bytes(content)
        with pytest.raises(ModelImportError, match="is no SentencePiece model"):
            tokenizer_of(tmp_path / "model")
    (tmp_path / "model").write_bytes(sentencepiece_model("char", vocab_size=60))
    with pytest.raises(ModelImportError, match=r"type 4, allowed: 1 \(unigram\), 2 \(BPE\)"):
        tokenizer_of(tmp_path / "model")
