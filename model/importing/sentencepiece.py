"""A SentencePiece model (Kudo and Richardson 2018, https://aclanthology.org/D18-2012) as a `tokenizer.json`.

Both kinds are read: unigram language models (Kudo 2018, https://aclanthology.org/P18-1007) and byte-pair encoding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from model.importing.options import ModelImportError

SPACE = "▁"

_UNIGRAM, _BPE = 1, 2
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)


def read_model(path: Path) -> Any:
    """The description within a .spm or .model file; ModelImportError for what is none."""
    description: Any = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]  # made as it is imported
    try:
        description.ParseFromString(path.read_bytes())
    except Exception as error:  # protobuf's own kind, which moves from version to version
        raise ModelImportError(f"{path} is no SentencePiece model: {error}") from error
    if not description.pieces:
        raise ModelImportError(f"{path} is no SentencePiece model: it has no pieces")
    return description


def tokenizer_of(path: Path, special: Iterable[str] = ()) -> tokenizers.Tokenizer:
    """The tokenizer that cuts a text as the model in `path` does; its ids are the places in that file.

    `special` are further tokens that only code adds to a text.
    """
    description = read_model(path)
    kind = description.trainer_spec.model_type
    if kind not in (_UNIGRAM, _BPE):
        raise ModelImportError(f"{path}: the SentencePiece model is of type {kind}, allowed: 1 (unigram), 2 (BPE)")
    if description.trainer_spec.treat_whitespace_as_suffix:
        raise ModelImportError(f"{path}: treat_whitespace_as_suffix is True, it must be False")
    pieces = description.pieces
    unknown = next((index for index, piece in enumerate(pieces) if piece.type == _UNKNOWN), None)
    if unknown is None:
        raise ModelImportError(f"{path} has no piece for what is unknown")
    has_bytes = any(piece.type == _BYTE for piece in pieces)
    made = (_unigram if kind == _UNIGRAM else _byte_pairs)(pieces, unknown, has_bytes)
    backend = tokenizers.Tokenizer(made)
    backend.normalizer = _normalizer(description.normalizer_spec)
    backend.pre_tokenizer = pre_tokenizers.Metaspace(
        replacement=SPACE,
        prepend_scheme="always" if description.normalizer_spec.add_dummy_prefix else "never",
        split=description.trainer_spec.split_by_whitespace,
    )
    backend.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    names = [piece.piece for piece in pieces if piece.type in (_CONTROL, _UNKNOWN)]
    backend.add_special_tokens(
        [AddedToken(name, special=True, normalized=False) for name in dict.fromkeys([*names, *special])]
    )
    user_defined = [piece.piece for piece in pieces if piece.type == _USER_DEFINED]
    backend.add_tokens([AddedToken(name, special=False, normalized=False) for name in user_defined])
    return backend


def _unigram(pieces: Sequence[Any], unknown: int, has_bytes: bool) -> models.Model:
    return models.Unigram([(piece.piece, piece.score) for piece in pieces], unknown, has_bytes)


def _byte_pairs(pieces: Sequence[Any], unknown: int, has_bytes: bool) -> models.Model:
    """Merges are not in the file: two pieces are merged if their sum is one, the best score first."""
    ids = {piece.piece: index for index, piece in enumerate(pieces)}
    merges = [
        (-piece.score, index, ids[piece.piece[:cut]], piece.piece[:cut], piece.piece[cut:])
        for index, piece in enumerate(pieces)
        if piece.type in (_NORMAL, _USER_DEFINED)
        for cut in range(1, len(piece.piece))
        if piece.piece[:cut] in ids and piece.piece[cut:] in ids
    ]
    return models.BPE(
        ids,
        [(left, right) for *_, left, right in sorted(merges)],
        unk_token=pieces[unknown].piece,
        fuse_unk=True,
        byte_fallback=has_bytes,
    )


def _normalizer(specification: Any) -> normalizers.Normalizer:
    steps: list[normalizers.Normalizer] = []
    if specification.precompiled_charsmap:
        steps.append(normalizers.Precompiled(specification.precompiled_charsmap))
    if specification.remove_extra_whitespaces:
        steps += [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip(left=True, right=True)]
    return normalizers.Sequence(steps)
