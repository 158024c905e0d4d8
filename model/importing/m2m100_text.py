"""The text of M2M100 and NLLB: a token for each language, before the source and at the begin of the target."""

from __future__ import annotations

import re
from pathlib import Path

from model.importing.decoding import describe_decoding
from model.importing.languages import pairs, to_bcp47
from model.importing.marian_text import read_ids
from model.importing.options import ModelImportError
from model.importing.sentencepiece import read_model, tokenizer_of
from model.importing.text import TextPart, TextSource
from model.importing.tokenizer import read_tokenizer
from model.piece_tokenizer import PieceTokenizer
from model.tokenizer import Tokenizer

_M2M100_TEXT = """
    af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht
    hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps
    pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu
"""
_M2M100 = _M2M100_TEXT.split()
"""The languages of M2M100 in the order of their ids, which no file of the older folders holds."""
_WMT21 = ["en", "ha", "is", "ja", "cs", "ru", "zh", "de"]
_CODE = re.compile(r"__([a-z]{2,3})__|[a-z]{3}_[A-Z][a-z]{3}")
_START, _PAD, _END, _UNKNOWN = "<s>", "<pad>", "</s>", "<unk>"
FIRST_PIECES = {_START: 0, _PAD: 1, _END: 2, _UNKNOWN: 3}
"""What fairseq puts before the pieces of a SentencePiece model, which has three of its own."""


def describe(text: TextSource) -> TextPart:
    """One tokenizer; the source is `[code] text </s>`, or as older files ask for, `text </s> [code]`."""
    tokenizer, tokens = read_coded_tokenizer(text)
    spellings = {
        code: f"__{name}__" if f"__{name}__" in tokens else name for code, name in to_bcp47(map(_bare, tokens)).items()
    }
    codes, directions = pairs(list(spellings), list(spellings), text.source_languages, text.target_languages)
    is_old = text.file_options("tokenizer_config.json").boolean("legacy_behaviour", False)
    return TextPart(
        tokenizer,
        metadata={
            "languages": codes,
            "directions": [list(pair) for pair in directions],
            "format": {
                "source_prefix": [] if is_old else ["{source}"],
                "source_suffix": [_END, "{source}"] if is_old else [_END],
                "decoder_start": [tokenizer.token(text.config.bos_id)],
                "target_prefix": ["{target}"],
                "spellings": {code: name for code, name in spellings.items() if code in codes},
            },
            "decoding": describe_decoding(text) | {"forced_begin_token_id": None},  # it depends on the target
        },
    )


def _bare(token: str) -> str:
    return token.strip("_") if token.startswith("__") else token


def read_coded_tokenizer(text: TextSource) -> tuple[Tokenizer, list[str]]:
    """The tokenizer and its tokens for languages, of tokenizer.json or of a SentencePiece model and vocab.json."""
    folder = text.source.transformer
    if (folder / "tokenizer.json").is_file():
        tokenizer = read_tokenizer(text.source, text.config.vocab_size)
        found = [token.content for token in tokenizer.backend.get_added_tokens_decoder().values()]
        if not (tokens := [token for token in found if _CODE.fullmatch(token)]):
            raise ModelImportError(
                f"{folder / 'tokenizer.json'} has no token for a language, such as deu_Latn or __de__"
            )
        return tokenizer, tokens
    model = folder / "sentencepiece.bpe.model"
    if not model.is_file():
        raise ModelImportError(f"{folder} lacks tokenizer.json and {model.name}: its text cannot be cut without either")
    if (folder / "vocab.json").is_file():
        ids = read_ids(folder / "vocab.json")
        tokens = [f"__{code}__" for code in _m2m100_codes(text)]
        first = len(ids)
    else:
        ids = fairseq_ids(model)
        tokens = stated_tokens(text, _CODE)
        first = len(ids)
        if not tokens:
            raise ModelImportError(
                f"{folder} names no languages: special_tokens_map.json must list them in additional_special_tokens, or "
                "tokenizer.json have them"
            )
    ids |= {token: first + index for index, token in enumerate(tokens)}
    backend = tokenizer_of(model, [*FIRST_PIECES, *tokens])
    return PieceTokenizer(backend, ids, ids[_UNKNOWN]), tokens


def fairseq_ids(model: Path) -> dict[str, int]:
    """The ids of a SentencePiece model's pieces where fairseq numbers them: one more than their places in it."""
    pieces = [piece.piece for piece in read_model(model).pieces]
    return FIRST_PIECES | {piece: index + 1 for index, piece in enumerate(pieces) if index >= 3}


def stated_tokens(text: TextSource, code: re.Pattern[str]) -> list[str]:
    """The tokens for languages that the files beside the tokenizer list, in the order of their ids."""
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        options = text.file_options(name)
        for field in ("additional_special_tokens", "extra_special_tokens"):
            listed = options.get(field)
            spelled = [item.get("content") if isinstance(item, dict) else item for item in listed or []]
            if tokens := [item for item in spelled if isinstance(item, str) and code.fullmatch(item)]:
                return tokens
    return []


def _m2m100_codes(text: TextSource) -> list[str]:
    name = text.file_options("tokenizer_config.json").get("language_codes") or "m2m100"
    known = {"m2m100": _M2M100, "wmt21": _WMT21}
    if name not in known:
        raise ModelImportError(f"tokenizer_config.json: language_codes is {name!r}, allowed: {', '.join(known)}")
    return known[name]
