"""The text of BART, which writes about a source, and of mBART, which translates it."""

from __future__ import annotations

import re

from model.importing.decoding import describe_decoding
from model.importing.languages import pairs, to_bcp47
from model.importing.m2m100_text import FIRST_PIECES, fairseq_ids, stated_tokens
from model.importing.options import ModelImportError
from model.importing.sentencepiece import tokenizer_of
from model.importing.text import TextPart, TextSource
from model.importing.tokenizer import read_tokenizer
from model.piece_tokenizer import PieceTokenizer
from model.tokenizer import Tokenizer

_CODE = re.compile(r"[a-z]{2}_[A-Z]{2}")
_END, _UNKNOWN, _MASK = "</s>", "<unk>", "<mask>"
_CC25_TEXT = """
    ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP
    nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN
"""
_CC25 = _CC25_TEXT.split()
"""The languages of mBART-25 in the order of their ids."""
_CC50_TEXT = """
    af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX sv_SE sw_KE
    ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI
"""
_CC50 = _CC50_TEXT.split()
"""Those that mBART-50 has behind them."""


def describe_bart(text: TextSource) -> TextPart:
    """One tokenizer, and what a model that writes about a source is prompted with."""
    tokenizer = read_tokenizer(text.source, text.config.vocab_size)
    return TextPart(
        tokenizer,
        task="generate",
        metadata={
            "generation": {"eos_token_ids": [text.config.eos_id], "adds_bos": bool(tokenizer.num_special_tokens)},
            "decoding": describe_decoding(text),
        },
    )


def describe_mbart(text: TextSource) -> TextPart:
    """mBART-25 reads `text </s> code` and starts with the code; 50 reads `code text </s>` and starts with `</s>`."""
    tokenizer, tokens = _read_tokenizer(text)
    spellings = to_bcp47(tokens)
    codes, directions = pairs(list(spellings), list(spellings), text.source_languages, text.target_languages)
    is_50 = _is_50(text, tokens)
    return TextPart(
        tokenizer,
        metadata={
            "languages": codes,
            "directions": [list(pair) for pair in directions],
            "format": {
                "source_prefix": ["{source}"] if is_50 else [],
                "source_suffix": [_END] if is_50 else [_END, "{source}"],
                "decoder_start": [_END] if is_50 else ["{target}"],
                "target_prefix": ["{target}"] if is_50 else [],
                "spellings": {code: name for code, name in spellings.items() if code in codes},
            },
            "decoding": describe_decoding(text) | {"forced_begin_token_id": None},  # it depends on the target
        },
    )


def _is_50(text: TextSource, tokens: list[str]) -> bool:
    """By the tokenizer's class, and by the number of languages where no class is named."""
    name = text.file_options("tokenizer_config.json").get("tokenizer_class")
    if isinstance(name, str) and name.startswith("MBart"):
        return "50" in name
    return len(tokens) > len(_CC25)


def _read_tokenizer(text: TextSource) -> tuple[Tokenizer, list[str]]:
    folder = text.source.transformer
    if (folder / "tokenizer.json").is_file():
        tokenizer = read_tokenizer(text.source, text.config.vocab_size)
        found = [token.content for token in tokenizer.backend.get_added_tokens_decoder().values()]
        if not (tokens := [token for token in found if _CODE.fullmatch(token)]):
            raise ModelImportError(f"{folder / 'tokenizer.json'} has no token for a language, such as de_DE")
        return tokenizer, tokens
    model = folder / "sentencepiece.bpe.model"
    if not model.is_file():
        raise ModelImportError(f"{folder} lacks tokenizer.json and {model.name}: its text cannot be cut without either")
    ids = fairseq_ids(model)
    known = [_CC25, [*_CC25, *_CC50]]
    tokens = stated_tokens(text, _CODE) or next(
        (codes for codes in known if text.config.vocab_size == len(ids) + len(codes) + 1), []
    )
    if not tokens:
        raise ModelImportError(
            f"{folder}: vocab_size {text.config.vocab_size} is neither that of mBART-25 nor of mBART-50 over a "
            f"SentencePiece model of {len(ids)} tokens, and special_tokens_map.json names no languages"
        )
    ids |= {token: len(ids) + index for index, token in enumerate([*tokens, _MASK])}
    return PieceTokenizer(tokenizer_of(model, [*FIRST_PIECES, *tokens, _MASK]), ids, ids[_UNKNOWN]), tokens
