"""The text of the T5 family: a task in words before the source, or in MADLAD-400 a token for the target's language."""

from __future__ import annotations

import re
from typing import Any

from model.importing.decoding import describe_decoding
from model.importing.languages import pairs, to_bcp47
from model.importing.options import ModelImportError
from model.importing.sentencepiece import tokenizer_of
from model.importing.text import TextPart, TextSource
from model.importing.tokenizer import read_tokenizer
from model.tokenizer import Tokenizer

_TARGET_CODE = re.compile(r"<2([a-z]{2,3}(?:_[A-Za-z]{2,4})?)>")
_TASK = re.compile(r"translation_([a-z]{2,3})_to_([a-z]{2,3})")
_PREFIX = re.compile(r"translate (\S+) to (\S+): ")


def describe(text: TextSource) -> TextPart:
    """A translation model if the tokenizer has codes of targets or config.json has prefixes; else one that writes."""
    tokenizer = _read_tokenizer(text)
    codes = [match[1] for token in tokenizer.backend.get_vocab() if (match := _TARGET_CODE.fullmatch(token))]
    end = tokenizer.token(text.config.eos_id)
    own: dict[str, Any] = {"decoder_start": [tokenizer.token(text.config.bos_id)], "source_suffix": [end]}
    if codes:
        translation = _by_token(text, tokenizer, sorted(codes))
    elif prefixes := _prefixes(text):
        translation = _by_words(text, prefixes)
    else:
        generation = {"eos_token_ids": [text.config.eos_id]}
        return TextPart(
            tokenizer, task="generate", metadata={"generation": generation, "decoding": describe_decoding(text)}
        )
    translation["format"] |= own
    return TextPart(tokenizer, metadata={**translation, "decoding": describe_decoding(text)})


def _by_token(text: TextSource, tokenizer: Tokenizer, codes: list[str]) -> dict[str, Any]:
    """MADLAD-400; the token stands as it does where its spelling is before a text, in some files behind a space."""
    spellings = to_bcp47(codes)
    languages, directions = pairs(list(spellings), list(spellings), text.source_languages, text.target_languages)
    spelled = f"<2{codes[0]}>"
    alone = tokenizer.reading_special_tokens.encode(f"{spelled} a")
    before = [tokenizer.token(token_id) for token_id in alone[: alone.index(tokenizer.token_id(spelled))]]
    return {
        "languages": languages,
        "directions": [list(pair) for pair in directions],
        "format": {
            "source_prefix": [*before, "<2{target}>"],
            "spellings": {code: name for code, name in spellings.items() if code in languages and code != name},
        },
    }


def _prefixes(text: TextSource) -> dict[tuple[str, str], str]:
    """The prefixes of translations, by direction, among the tasks that config.json names."""
    tasks = text.options.mapping("task_specific_params")
    found = {}
    for name, task in tasks.items():
        if (match := _TASK.fullmatch(name)) and isinstance(task, dict) and isinstance(task.get("prefix"), str):
            found[match[1], match[2]] = task["prefix"]
    return found


def _by_words(text: TextSource, prefixes: dict[tuple[str, str], str]) -> dict[str, Any]:
    names: dict[str, str] = {}
    for (source, target), prefix in prefixes.items():
        match = _PREFIX.fullmatch(prefix)
        if match is None:
            raise ModelImportError(f"{text.options.file}: the prefix {prefix!r} must be 'translate A to B: '")
        names |= {source: match[1], target: match[2]}
    sources, targets = (list(dict.fromkeys(pair[side] for pair in prefixes)) for side in (0, 1))
    codes, directions = pairs(sources, targets, text.source_languages, text.target_languages)
    return {
        "languages": codes,
        "directions": [list(pair) for pair in directions if pair in prefixes],
        "format": {
            "text_prefix": "translate {source} to {target}: ",
            "spellings": {code: names[code] for code in codes},
        },
    }


def _read_tokenizer(text: TextSource) -> Tokenizer:
    """tokenizer.json, or spiece.model, whose places are the ids."""
    folder = text.source.transformer
    if (folder / "tokenizer.json").is_file():
        return read_tokenizer(text.source, text.config.vocab_size)
    if not (folder / "spiece.model").is_file():
        raise ModelImportError(f"{folder} lacks tokenizer.json and spiece.model: its text cannot be cut without either")
    return Tokenizer(tokenizer_of(folder / "spiece.model"))
