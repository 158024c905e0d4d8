"""A tokenizer whose segmentation and ids are two things: pieces are cut by one file, and numbered by another.

Marian cuts a source with source.spm and a target with target.spm, and looks the pieces of both up in vocab.json.
Free of torch, because the service imports it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import tokenizers

from model.tokenizer import UNK, Tokenizer, TokenizerError


class _Numbered:
    """An encoding whose ids are those of a table: the library's own cannot be changed."""

    def __init__(self, encoding: tokenizers.Encoding, table: Sequence[int]) -> None:
        self.ids = [table[own_id] for own_id in encoding.ids]
        self._encoding = encoding

    def __getattr__(self, name: str) -> Any:
        return getattr(self._encoding, name)

    def __len__(self) -> int:
        return len(self.ids)


class PieceTokenizer(Tokenizer):
    """A tokenizer file, and the model's ids of its pieces; a piece without an id is `unknown_id`.

    Special tokens of the file are never found in a text: their ids are added by code alone.
    """

    def __init__(self, backend: tokenizers.Tokenizer, ids: Mapping[str, int], unknown_id: int) -> None:
        super().__init__(backend)
        self.ids, self.unknown_id = dict(ids), unknown_id
        self._pieces = {token_id: piece for piece, token_id in ids.items()}
        special = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
        self._special_ids = frozenset(self.ids[piece] for piece in special if piece in self.ids)
        self._model_ids = [unknown_id] * backend.get_vocab_size()
        for piece, own_id in backend.get_vocab().items():
            if piece not in special:
                self._model_ids[own_id] = self.ids.get(piece, unknown_id)

    @classmethod
    def load_pieces(cls, path: Path, pieces: Path, unknown_id: int | None = None) -> PieceTokenizer:
        """Read a `tokenizer.json` and a JSON object of ids by piece; TokenizerError for what is neither.

        `unknown_id` is by default that of the piece "<unk>".
        """
        try:
            ids = json.loads(pieces.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise TokenizerError(f"{pieces} cannot be read: {error}") from error
        if not isinstance(ids, dict) or not all(type(token_id) is int and token_id >= 0 for token_id in ids.values()):
            raise TokenizerError(f"{pieces} must hold an object of token ids by piece")
        if unknown_id is None and UNK not in ids:
            raise TokenizerError(f"{pieces} has no id for {UNK}")
        return cls(Tokenizer.load(path).backend, ids, ids[UNK] if unknown_id is None else unknown_id)

    def save_pieces(self, path: Path) -> None:
        """Write the ids by piece."""
        path.write_text(json.dumps(self.ids, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")

    @property
    def vocab_size(self) -> int:
        """One more than the largest id."""
        return max(self.ids.values(), default=-1) + 1

    @property
    def largest_id(self) -> int:
        return max(self.vocab_size - 1, self.unknown_id)

    def token_id(self, token: str) -> int:
        if token not in self.ids:
            raise TokenizerError(f"the tokenizer has no token {token!r}")
        return self.ids[token]

    def token(self, token_id: int) -> str:
        if token_id not in self._pieces:
            raise TokenizerError(f"the tokenizer has no token with the id {token_id}")
        return self._pieces[token_id]

    def encode(self, text: str) -> list[int]:
        table = self._model_ids
        return [table[own_id] for own_id in super().encode(text)]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        table = self._model_ids
        encodings = self.backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return [[table[own_id] for own_id in encoding.ids] for encoding in encodings]

    def encodings(
        self,
        texts: Sequence[str | tuple[str, str]],
        add_special_tokens: bool = True,
        *,
        with_offsets: bool = True,
    ) -> list[tokenizers.Encoding]:
        """As those of the file, with the model's ids."""
        found = super().encodings(texts, add_special_tokens, with_offsets=with_offsets)
        return [cast("tokenizers.Encoding", _Numbered(encoding, self._model_ids)) for encoding in found]

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        pieces = [
            self._pieces[token_id]
            for token_id in token_ids
            if token_id in self._pieces and not (skip_special_tokens and token_id in self._special_ids)
        ]
        decoder = self.backend.decoder
        return "".join(pieces) if decoder is None else decoder.decode(pieces)

    @functools.cached_property
    def special_ids(self) -> frozenset[int]:
        """The ids of the special tokens."""
        return self._special_ids
