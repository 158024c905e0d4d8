"""A Marian model's text: pieces of source.spm and target.spm, numbered by vocab.json, and the codes of its targets."""

from __future__ import annotations

import re
from pathlib import Path

from model.importing.decoding import describe_decoding
from model.importing.languages import is_code, pairs, to_bcp47
from model.importing.options import ModelImportError
from model.importing.sentencepiece import tokenizer_of
from model.importing.source import read_object
from model.importing.text import TextPart, TextSource
from model.piece_tokenizer import PieceTokenizer

_END, _UNKNOWN = "</s>", "<unk>"
_TARGET_CODE = re.compile(r">>(.+)<<")


def describe(text: TextSource) -> TextPart:
    """Two tokenizers, the languages that the folder or the user names, and Marian's decoding.

    Punctuation is left as it is: the tokenizer in transformers has a normaliser for it and never calls it.
    """
    folder, config = text.source.transformer, text.config
    ids = read_ids(folder / "vocab.json")
    target_ids = read_ids(folder / "target_vocab.json") if config.source_embedding == "own" else ids
    target = _tokenizer(folder / "target.spm", target_ids)
    spellings = to_bcp47(
        match[1] for piece in ids if (match := _TARGET_CODE.fullmatch(piece)) and is_code_like(match[1])
    )
    sources, targets = _languages(text, list(spellings))
    codes, directions = pairs(sources, targets, (), text.target_languages)
    return TextPart(
        _tokenizer(folder / "source.spm", ids),
        target,
        metadata={
            "languages": codes,
            "directions": [list(pair) for pair in directions],
            "format": {
                "source_prefix": [">>{target}<<"] if spellings else [],
                "source_suffix": [_END],
                "decoder_start": [target.token(config.bos_id)],
                "spellings": {code: name for code, name in spellings.items() if code in codes and code != name},
            },
            "decoding": describe_decoding(text),
        },
    )


def is_code_like(spelling: str) -> bool:
    """Whether a target's code names a language, in which case it becomes a code of ours."""
    return is_code(spelling.replace("_", "-"))


def read_ids(path: Path) -> dict[str, int]:
    """The ids of pieces; ModelImportError for a file that is none."""
    ids = read_object(path)
    if not all(type(token_id) is int and token_id >= 0 for token_id in ids.values()):
        raise ModelImportError(f"{path} must hold token ids by piece")
    if missing := [piece for piece in (_END, _UNKNOWN) if piece not in ids]:
        raise ModelImportError(f"{path} lacks {', '.join(missing)}")
    return ids


def _tokenizer(path: Path, ids: dict[str, int]) -> PieceTokenizer:
    if not path.is_file():
        raise ModelImportError(f"{path.parent} lacks {path.name}; its text cannot be cut without it")
    special = [piece for piece in ids if piece in ("<pad>", _END, _UNKNOWN) or _TARGET_CODE.fullmatch(piece)]
    return PieceTokenizer(tokenizer_of(path, special), ids, ids[_UNKNOWN])


def _languages(text: TextSource, coded_targets: list[str]) -> tuple[list[str], list[str]]:
    """Codes of sources and of targets: what the user says, what tokenizer_config.json says, what README.md lists.

    The model is told the target alone, so that any source may be named.
    """
    options = text.file_options("tokenizer_config.json")
    stated = {side: options.get(f"{side}_lang") for side in ("source", "target")}
    listed = list(to_bcp47(text.source.stated_languages()))
    sides = {}
    for side, chosen in (("source", text.source_languages), ("target", coded_targets or text.target_languages)):
        found = list(chosen)
        if not found and is_code(stated[side]) and len(str(stated[side])) <= 3:
            found = list(to_bcp47([str(stated[side])]))
        sides[side] = found
    for side, other in (("source", "target"), ("target", "source")):
        if not sides[side]:  # a group of languages: those of the model card but the other side's
            sides[side] = [code for code in listed if sides[other] != [code]]
        if not sides[side]:
            raise ModelImportError(
                f"{options.file} says {side}_lang {stated[side]!r}, which is no language's code, and README.md lists "
                f"none: name them with --{side}-languages"
            )
    return sides["source"], sides["target"]
