"""The tokenizer.json of a model of others, taken as it is but for what the service decides."""

from __future__ import annotations

import json
from typing import Any

import tokenizers

from model.importing.options import ModelImportError
from model.importing.sentence_transformers import transformer_options
from model.importing.source import SourceFolder, read_object
from model.tokenizer import Tokenizer

_NORMALIZER_OPTIONS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
"""Options of tokenizer_config.json that transformers follows for BERT, and what they are called in tokenizer.json."""


def read_tokenizer(source: SourceFolder, vocab_size: int) -> Tokenizer:
    """Without truncation and padding, which the service decides, and lower-casing if sentence-transformers adds it.

    ModelImportError where it has more tokens than the model, or where the folder's two files contradict each other:
    either would give other vectors than the model's own, without a word.
    """
    path = source.transformer / "tokenizer.json"
    if not path.is_file():
        folder = source.transformer
        raise ModelImportError(
            f'{folder} lacks tokenizer.json; make it where transformers is installed: python -c "from transformers '
            f"import AutoTokenizer; AutoTokenizer.from_pretrained('{folder}').save_pretrained('{folder}')\""
        )
    description = read_object(path) | {"truncation": None, "padding": None}
    _refuse_contradictions(source, description.get("normalizer"))
    options = transformer_options(source)
    if options.boolean("do_lower_case", False) and not _lower_cases(description.get("normalizer")):
        steps = [{"type": "Lowercase"}, *filter(None, [description.get("normalizer")])]
        description["normalizer"] = {"type": "Sequence", "normalizers": steps}
    options.check()
    try:
        backend = tokenizers.Tokenizer.from_str(json.dumps(description))
    except Exception as error:  # the library raises bare Exception for a malformed file
        raise ModelImportError(f"{path} is not a tokenizer.json: {error}") from error
    largest = max(backend.get_vocab(with_added_tokens=True).values(), default=0)
    if largest >= vocab_size:
        raise ModelImportError(f"{path} has the token id {largest}, config.json says vocab_size {vocab_size}")
    return Tokenizer(backend)


def _steps(normalizer: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The normalizer as a flat list."""
    if not normalizer:
        return []
    if normalizer.get("type") == "Sequence":
        return [step for part in normalizer.get("normalizers", []) for step in _steps(part)]
    return [normalizer]


def _lower_cases(normalizer: dict[str, Any] | None) -> bool:
    return any(step.get("type") == "Lowercase" or step.get("lowercase") is True for step in _steps(normalizer))


def _refuse_contradictions(source: SourceFolder, normalizer: dict[str, Any] | None) -> None:
    options = source.options(source.transformer / "tokenizer_config.json")
    for step in (step for step in _steps(normalizer) if step.get("type") == "BertNormalizer"):
        for name, counterpart in _NORMALIZER_OPTIONS.items():
            if options.get(name) is not None and options.get(name) != step.get(counterpart):
                options.refuse(name, options.get(name), f"tokenizer.json has {counterpart} {step.get(counterpart)!r}")
    if options.problems:
        folder = source.transformer
        options.problems.append(
            'transformers follows the former; let it write both anew: python -c "from transformers import '
            f"AutoTokenizer; AutoTokenizer.from_pretrained('{folder}').save_pretrained('{folder}')\""
        )
    options.check()
