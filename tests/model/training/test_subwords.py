import numpy as np
import pytest

from model.tokenizer import TokenizerError, train
from model.training.subwords import BpeDropout, encode_words
from tests.model.samples import PAIRS, tiny_tokenizer

TOKENIZER = tiny_tokenizer(vocab_size=500)
TEXTS = [text for pair in PAIRS for text in pair] + ["3.5 km, „straße“ 🙂", ""]


def test_words_hold_the_tokens_of_the_text() -> None:
    for text, words in zip(TEXTS, encode_words(TOKENIZER, TEXTS), strict=True):
        assert [token_id for word in words for token_id in word] == TOKENIZER.encode(text)
    [words] = encode_words(TOKENIZER, ["The dog sleeps."])
    assert [TOKENIZER.decode(word) for word in words] == ["The", "dog", "sleeps", "."]


def test_without_dropout_words_are_merged_as_the_tokenizer_merges_them() -> None:
    whole = BpeDropout(TOKENIZER, 0.0)
    for words in encode_words(TOKENIZER, TEXTS):
        for word in words:
            assert whole.split(word, np.random.default_rng(1)) == word


def test_dropped_merges_change_the_pieces_and_not_the_text() -> None:
    dropout = BpeDropout(TOKENIZER, 0.3)
    changed = 0
    for text, words in zip(TEXTS, encode_words(TOKENIZER, TEXTS), strict=True):
        split = [dropout.split(word, np.random.default_rng(index)) for index, word in enumerate(words)]
        assert TOKENIZER.decode([token_id for word in split for token_id in word]) == text
        changed += split != words
        again = [dropout.split(word, np.random.default_rng(index)) for index, word in enumerate(words)]
        assert again == split
    assert changed > len(TEXTS) / 2


def test_all_merges_dropped_leaves_characters() -> None:
    [[word]] = encode_words(TOKENIZER, ["The"])
    letters = BpeDropout(TOKENIZER, 0.9999999).split(word, np.random.default_rng(1))
    assert [TOKENIZER.token(token_id) for token_id in letters] == ["▁", "T", "h", "e"]


def test_another_kind_of_tokenizer_is_refused() -> None:
    with pytest.raises(TokenizerError, match="needs a tokenizer of type BPE, this one is WordPiece"):
        BpeDropout(train([text for text in TEXTS if text], 300, "wordpiece"), 0.1)
