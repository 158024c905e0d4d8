"""The import as one sequence: find the parts, read the configuration, the tokenizer and the weights, describe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from model.checkpoint import Checkpoint
from model.config import ConfigError, ModelConfig
from model.importing.family import Family
from model.importing.generation import describe_generation
from model.importing.options import ModelImportError, Options, refuse_unknown_code
from model.importing.registry import FAMILIES
from model.importing.sentence_transformers import describe_embedding
from model.importing.source import SourceFolder, open_source
from model.importing.text import TextPart, TextSource
from model.importing.tokenizer import read_tokenizer
from model.importing.weights import RenamedWeights, WeightFiles, fill
from model.pooling import Pooling
from model.tokenizer import Tokenizer
from model.transformer import Transformer


def import_checkpoint(
    folder: Path,
    name: str | None = None,
    pooling: Pooling | None = None,
    report: Callable[[str], None] = lambda _: None,
    languages: tuple[Sequence[str], Sequence[str]] = ((), ()),
) -> Checkpoint:
    """Make a checkpoint of a folder that transformers or sentence-transformers wrote.

    `name` is by default the folder's; `pooling` replaces what the folder says; `languages` are those to read and those
    to write, of the ones that a translation model has; `report` is called with what was left out and what was decided.
    ModelImportError lists all that is missing, unknown or cannot be represented.
    """
    source = open_source(folder)
    model_type, family, options = _family(source)
    files = WeightFiles.find(source.transformer)
    fields = _fields(family, options)
    refuse_unknown_code(options)
    for note in options.notes:
        report(note)
    fields = family.decide_by_weights(fields, RenamedWeights(family, files))
    if pooling is not None and family.task != "embed":
        raise ModelImportError(f"pooling is for models that embed, a {model_type} generates")
    if family.describe is not None:
        config = _config(options, fields)
        part = family.describe(TextSource(source, options, config, report, *languages))
    else:
        part, config = _text_part(source, family, fields, options, pooling, report)
    _check_tokens(folder, config, part)
    model = Transformer(config)
    dtype, left_out = fill(model, family, files)
    for reason, names in left_out.items():
        report(f"left out {', '.join(names)}: {reason}")
    metadata: dict[str, Any] = {"task": part.task, "name": name or source.name, **part.metadata}
    if licence := source.licence():
        metadata["licence"] = licence
    metadata["source"] = {"model_type": model_type, "sha256": files.sha256()}
    stored = _store(model, dtype, report)
    return Checkpoint(model.eval(), part.tokenizer, metadata, stored, part.target_tokenizer)


def _text_part(
    source: SourceFolder,
    family: Family,
    fields: dict[str, Any],
    options: Options,
    pooling: Pooling | None,
    report: Callable[[str], None],
) -> tuple[TextPart, ModelConfig]:
    """What the one tokenizer.json of an encoder or a decoder makes of the fields, and the section of its task."""
    tokenizer = read_tokenizer(source, fields["vocab_size"])
    config = _config(options, fields | _ends(fields, tokenizer))
    section: dict[str, Any]
    if family.task == "embed":
        section = {"embedding": describe_embedding(source, config, pooling, report)}
    else:
        section = {"generation": describe_generation(source, config, tokenizer, report)}
    return TextPart(tokenizer, task=family.task, metadata=section), config


def _check_tokens(folder: Path, config: ModelConfig, part: TextPart) -> None:
    """Refuse a token whose id is beyond the vocabulary of the model's embedding."""
    for tokenizer, side in ((part.tokenizer, "source"), (part.target_tokenizer or part.tokenizer, "target")):
        size = config.vocab_size if side == "target" else config.num_source_tokens
        if tokenizer.vocab_size > size and (side == "source" or part.target_tokenizer is not None):
            raise ModelImportError(
                f"{folder}: the tokenizer of the {side} has the token id {tokenizer.vocab_size - 1}, config.json says "
                f"that there are {size} tokens"
            )


def _store(model: Transformer, dtype: torch.dtype, report: Callable[[str], None]) -> torch.dtype:
    """The type to store the weights of `model` in, which are rounded to it; `dtype` is theirs.

    There are two, float16 and float32. bfloat16 has fewer digits than float16 and a wider range: what is too large
    asks for float32, and what is below the smallest float16, 6e-8, is zero to any sum that it enters.
    """
    if dtype not in (torch.float16, torch.bfloat16):
        return torch.float32
    largest = max(float(parameter.detach().abs().max()) for parameter in model.parameters())
    if largest > torch.finfo(torch.float16).max:
        report(f"a weight is as large as {largest:.3g}, which float16 cannot hold: stored as float32")
        return torch.float32
    if dtype == torch.bfloat16:
        report("weights in bfloat16 are stored as float16")
    model.load_state_dict({name: tensor.half().float() for name, tensor in model.state_dict().items()})
    return torch.float16


def _family(source: SourceFolder) -> tuple[str, Family, Options]:
    options = source.options(source.transformer / "config.json", required=True)
    model_type = options.get("model_type")
    family = FAMILIES.get(model_type) if isinstance(model_type, str) else None
    if family is None:
        raise ModelImportError(
            f"{options.file}: model_type is {model_type!r}, the families that can be imported are {', '.join(FAMILIES)}"
        )
    options.require("quantization_config", None, {})
    options.require("pruned_heads", None, {})
    options.check()
    return model_type, family, options


def _fields(family: Family, options: Options) -> dict[str, Any]:
    fields = family.configure(options)
    options.check()
    return fields


def _ends(fields: dict[str, Any], tokenizer: Tokenizer) -> dict[str, int]:
    """The tokens that open and close a text, where the family's configuration does not say: the tokenizer does."""
    around = tokenizer.encodings([""])[0].ids or [fields["pad_id"]]
    return {name: end for name, end in (("bos_id", around[0]), ("eos_id", around[-1])) if name not in fields}


def _config(options: Options, fields: dict[str, Any]) -> ModelConfig:
    try:
        return ModelConfig(**fields)
    except ConfigError as error:
        raise ModelImportError(f"{options.file} makes no model: {error}") from error
