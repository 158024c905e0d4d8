"""What each token is in bytes, because a token may hold a part of a character only.

A text is the bytes of its tokens, one after the other. Two kinds of byte-pair encoding spell characters in bytes: the
byte-level one (Radford et al. 2019, GPT-2), in which every token is a string of bytes, each written as a printable
character; and byte fallback (Kudo and Richardson 2018, SentencePiece), in which characters without a token are spelled
by tokens such as <0xC3>.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

from tokenizers import pre_tokenizers

from model.tokenizer import Tokenizer, TokenizerError

_MAX_REMEMBERED = 65_536

_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


@cache
def _bytes_of_characters() -> dict[str, int]:
    """The byte that each character of a byte-level token stands for.

    A byte that is a printable Latin-1 character stands for itself; the others are written, in order, as the characters
    that the alphabet has beyond Latin-1.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    table = {character: ord(character) for character in alphabet if ord(character) < 256}
    rest = [byte for byte in range(256) if byte not in table.values()]
    return table | dict(zip([character for character in alphabet if ord(character) >= 256], rest, strict=True))


class TokenPieces:
    """The bytes of each token of a tokenizer.

    A special token has none: it is no part of a text. Nor has an id that the tokenizer does not know, as models have
    whose tables were padded to a round number.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._is_byte_level = "ByteLevel" in tokenizer.decoder_kinds
        self._has_byte_tokens = "ByteFallback" in tokenizer.decoder_kinds
        # Needed for every token of every stream, and a text has few different pairs of adjacent tokens.
        self.piece = lru_cache(_MAX_REMEMBERED)(self._piece)
        """The bytes that a token adds to a text, whose last plain token, or None, is the second argument.

        A word's token begins with a space, unless it is the first.
        """
        self.is_plain = lru_cache(_MAX_REMEMBERED)(self._is_plain)
        """Whether it is a part of the text: neither special nor unknown."""

    def is_special(self, token_id: int) -> bool:
        return token_id in self._tokenizer.special_ids

    def _is_plain(self, token_id: int) -> bool:
        return bool(self.name(token_id)) and not self.is_special(token_id)

    def name(self, token_id: int) -> str:
        """The token as the vocabulary spells it, "" where there is none."""
        try:
            return self._tokenizer.token(token_id)
        except TokenizerError:
            return ""

    def _piece(self, token_id: int, previous: int | None) -> bytes:
        name = self.name(token_id)
        if not name or self.is_special(token_id):
            return b""
        if self._is_byte_level:
            return _byte_level(name)
        if (byte := self._fallback_byte(name)) is not None:
            return bytes((byte,))
        if previous is None:
            return self._tokenizer.decode([token_id]).encode()
        before = self._tokenizer.decode([previous])
        return self._tokenizer.decode([previous, token_id])[len(before) :].encode()

    def surface(self, token_id: int, previous: int | None) -> bytes:
        """The same with special tokens spelled out."""
        return self.name(token_id).encode() if self.is_special(token_id) else self.piece(token_id, previous)

    def _fallback_byte(self, name: str) -> int | None:
        match = _BYTE_TOKEN.fullmatch(name) if self._has_byte_tokens else None
        return None if match is None else int(match[1], 16)


def _byte_level(name: str) -> bytes:
    table = _bytes_of_characters()
    try:
        return bytes([table[character] for character in name])
    except KeyError:  # a token that was added to the vocabulary is spelled as it is
        return name.encode()


def as_text(surface: bytes) -> str:
    """The bytes of a token as a text, in which a part of a character is U+FFFD."""
    return surface.decode(errors="replace")


def as_label(surface: bytes) -> str:
    r"""The same as OpenAI writes it: a part of a character as "bytes:\xf0\x9f"."""
    try:
        return surface.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in surface)
