"""Words of a text as tokens, and other tokens for the same words: BPE dropout."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence

import numpy as np

from model.tokenizer import Tokenizer, TokenizerError

Words = list[list[int]]
"""A text word by word, each its token ids; a word is what the tokenizer splits text into before it looks for pieces."""


def encode_words(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Words]:
    """The tokens of each text, grouped by word."""
    result = []
    for encoding in tokenizer.encodings(list(texts), add_special_tokens=False):
        words: dict[int, list[int]] = {}
        for token_id, word in zip(encoding.ids, encoding.word_ids, strict=True):
            words.setdefault(-1 if word is None else word, []).append(token_id)
        result.append(list(words.values()))
    return result


class BpeDropout:
    """Splits words into smaller pieces at random: Provilkov et al. 2020, https://arxiv.org/abs/1910.13267.

    Each time pieces are merged, each possible merge is left out with a chance of `share`. The library's own dropout
    takes no seed, so a resumed run would not repeat it. TokenizerError where the tokenizer is no byte-pair encoding.
    """

    def __init__(self, tokenizer: Tokenizer, share: float) -> None:
        model = json.loads(tokenizer.to_json())["model"]
        if model["type"] != "BPE":
            raise TokenizerError(f"BPE dropout needs a tokenizer of type BPE, this one is {model['type']}")
        self.share = share
        self._ids: dict[str, int] = model["vocab"]
        self._pieces = {token_id: piece for piece, token_id in self._ids.items()}
        self._ranks = {tuple(merge): rank for rank, merge in enumerate(model["merges"])}

    def split(self, word: Sequence[int], generator: np.random.Generator) -> list[int]:
        """The tokens of one word, merged anew; a word with characters that are spelled in bytes stays as it is."""
        pieces = [*"".join(self._pieces[token_id] for token_id in word)]
        if len(pieces) < 2 or any(piece not in self._ids for piece in pieces):
            return list(word)
        while True:
            pairs = enumerate(itertools.pairwise(pieces))
            merges = [(self._ranks[pair], place) for place, pair in pairs if pair in self._ranks]
            kept = [merges[index] for index in np.flatnonzero(generator.random(len(merges)) >= self.share)]
            if not kept:
                return [self._ids[piece] for piece in pieces]
            place = min(kept)[1]
            pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]
