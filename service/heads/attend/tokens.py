"""The tokens along a map's axes, with their places in the text, and the words that they spell."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tokenizers import Encoding

from model.tokenizer import Tokenizer
from service.heads.attend.words import find_words
from service.heads.generate.detokenizer import Detokenizer
from service.heads.generate.pieces import TokenPieces


@dataclass(frozen=True, slots=True)
class Token:
    """One token, or one word, of a sequence.

    `start` and `end` count characters of the text it is from, white space at its ends left out; `text_index` says which
    text where there are two. A special token is no part of a text, so it has none of the three. `id` is None for a word
    of several tokens.
    """

    id: int | None
    text: str
    start: int | None = None
    end: int | None = None
    special: bool = False
    text_index: int | None = None


@dataclass(frozen=True, slots=True)
class TokenSequence:
    """The tokens that a model reads, and the texts that they are from: one, or two for a pair."""

    texts: tuple[str, ...]
    tokens: tuple[Token, ...]

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def ids(self) -> tuple[int, ...]:
        """The token ids; none for a word, which the model does not read."""
        return tuple(token.id for token in self.tokens if token.id is not None)

    def labels(self) -> list[str]:
        return [token.text for token in self.tokens]


def special_token(tokenizer: Tokenizer, token_id: int) -> Token:
    """A special token, which has no place in the text."""
    return Token(token_id, tokenizer.token(token_id), special=True)


def encoded_tokens(encoding: Encoding, texts: Sequence[str]) -> tuple[Token, ...]:
    """The tokens of what a tokenizer made of `texts`."""
    return tuple(
        Token(token_id, name, special=True)
        if special or index is None
        else _text_token(token_id, name, texts, index, offsets)
        for token_id, name, special, index, offsets in zip(
            encoding.ids,
            encoding.tokens,
            encoding.special_tokens_mask,
            encoding.sequence_ids,
            encoding.offsets,
            strict=True,
        )
    )


def _text_token(token_id: int, name: str, texts: Sequence[str], index: int, offsets: tuple[int, int]) -> Token:
    start, end = _trimmed(texts[index], *offsets)
    return Token(token_id, texts[index][start:end].strip() or name, start, end, text_index=index)


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """The span without white space at its ends; one of white space alone stays as it is."""
    piece = text[start:end]
    if not piece.strip():
        return start, end
    return start + len(piece) - len(piece.lstrip()), end - (len(piece) - len(piece.rstrip()))


def generated_tokens(
    tokenizer: Tokenizer, token_ids: Sequence[int], prompt: Sequence[int] = (), text: str = ""
) -> tuple[str, tuple[Token, ...]]:
    """`text`, which `prompt` spells, continued by tokens that a model chose, and those tokens with their places in it.

    A model may spell a text otherwise than the tokenizer would, so the places come from the tokens themselves. Those
    that spell a part of a character share its place.
    """
    pieces = TokenPieces(tokenizer)
    detokenizer = Detokenizer(pieces, prompt)
    tokens: list[Token] = []
    spans: list[tuple[int, int] | None] = []
    for token_id in token_ids:
        added = detokenizer.push(token_id)
        begin = len(text)
        text += added
        if pieces.is_special(token_id):
            spans.append(None)
        else:
            spans.append((begin, len(text)))
    text += detokenizer.flush()
    for token_id, span in zip(token_ids, spans, strict=True):
        if span is None:
            tokens.append(special_token(tokenizer, token_id))
            continue
        begin, end = span
        if begin == end:  # the character that it is a part of is completed later
            end = min(begin + 1, len(text))
        start, end = _trimmed(text, begin, end)
        name = text[start:end].strip() or pieces.name(token_id)
        tokens.append(Token(token_id, name, start, end, text_index=0))
    return text, tuple(tokens)


@dataclass(frozen=True, slots=True)
class WordGroups:
    """The words of a sequence, special tokens among them, and the places of each one's tokens."""

    words: TokenSequence
    groups: tuple[tuple[int, ...], ...]

    def without_specials(self) -> WordGroups:
        """The words of the text alone, which can be aligned."""
        kept = [number for number, word in enumerate(self.words.tokens) if not word.special]
        words = replace(self.words, tokens=tuple(self.words.tokens[number] for number in kept))
        return WordGroups(words, tuple(self.groups[number] for number in kept))


def group_words(sequence: TokenSequence) -> WordGroups:
    """Adjacent tokens that begin in the same word of the text make that word; a special token is one by itself."""
    words = [find_words(text) for text in sequence.texts]
    keyed = [(_word_of(sequence, number, words), number) for number in range(len(sequence))]
    groups = [tuple(number for _, number in run) for _, run in itertools.groupby(keyed, key=lambda pair: pair[0])]
    return WordGroups(
        replace(sequence, tokens=tuple(_join(sequence, group) for group in groups)),
        tuple(groups),
    )


def _word_of(sequence: TokenSequence, number: int, words: Sequence[Sequence[tuple[int, int]]]) -> tuple[int, int]:
    """What the tokens of one word have in common: its text, and its place among the text's words."""
    token = sequence.tokens[number]
    if token.start is None or token.end is None or token.text_index is None:
        return (-1, number)
    spans = words[token.text_index]
    if not spans:
        return (-1, number)
    # The first word that ends behind the token's beginning. A token of white space stands before its word, or at the
    # very end, after the last.
    place = bisect_right(spans, token.start, key=lambda span: span[1])
    return (token.text_index, min(place, len(spans) - 1))


def _join(sequence: TokenSequence, group: Sequence[int]) -> Token:
    tokens = [sequence.tokens[number] for number in group]
    first, last = tokens[0], tokens[-1]
    if len(tokens) == 1 or first.start is None or last.end is None or first.text_index is None:
        return first
    text = sequence.texts[first.text_index]
    start, end = _trimmed(text, first.start, last.end)
    return Token(None, text[start:end], start, end, text_index=first.text_index)
