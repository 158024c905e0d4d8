"""What sentence-transformers keeps beside the model: pooling, normalisation, prompts, the longest input.

Its files are described at https://sbert.net/docs/package_reference/sentence_transformer/models.html; both the spelling
up to version 5 and that of version 6 are read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from model.config import ModelConfig
from model.importing.options import Options
from model.importing.source import SourceFolder
from model.pooling import Pooling

_TRANSFORMER_FILES = tuple(
    f"sentence_{family}_config.json"
    for family in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
"""The first that there is counts."""
_POOLINGS: dict[str, Pooling] = {"cls": "cls", "mean": "mean", "lasttoken": "last_token"}
_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "lasttoken",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
}
"""How versions before 6 say it -> how version 6 does."""


def transformer_options(source: SourceFolder) -> Options:
    """The options of the Transformer module: max_seq_length, do_lower_case; what the model cannot do is refused."""
    paths = [source.transformer / name for name in _TRANSFORMER_FILES]
    options = source.options(next((path for path in paths if path.is_file()), paths[0]))
    options.require("transformer_task", "feature-extraction")
    options.require("module_output_name", "token_embeddings")
    for modality, wanted in options.mapping("modality_config").items():
        expected = {"method": "forward", "method_output_name": "last_hidden_state"}
        if modality != "text" or wanted != expected:
            options.refuse(f"modality_config.{modality}", wanted, f"allowed: text: {expected}")
    options.check()
    return options


def describe_embedding(
    source: SourceFolder, config: ModelConfig, pooling: Pooling | None, report: Callable[[str], None]
) -> dict[str, Any]:
    """The "embedding" section of metadata.json. `pooling` is for folders without modules.json, else it must agree."""
    prompts, default_prompt_name = _prompts(source)
    stated = _stated_pooling(source, config, bool(prompts))
    if stated is None and pooling is None:
        report("there is no modules.json: mean pooling, as sentence-transformers does; --pooling says otherwise")
    elif stated is not None and pooling not in (None, stated):
        report(f"pooling is {pooling}, as asked for, though the folder says {stated}")
    return {
        "pooling": pooling or stated or "mean",
        "normalize": any(module.kind == "Normalize" for module in source.modules),
        "prompts": prompts,
        "default_prompt_name": default_prompt_name,
        "max_input_tokens": _max_input_tokens(source, config, report),
    }


def _stated_pooling(source: SourceFolder, config: ModelConfig, has_prompts: bool) -> Pooling | None:
    for module in source.modules:
        if module.kind == "Normalize":
            options = source.options(module.folder / "config.json")
            options.require("module_input_name", "sentence_embedding")
            options.require("module_output_name", "sentence_embedding", None)
            options.check()
    folder = next((module.folder for module in source.modules if module.kind == "Pooling"), None)
    if folder is None:
        return None
    options = source.options(folder / "config.json", required=True)
    for name in ("word_embedding_dimension", "embedding_dimension"):
        options.require(name, config.d_model)
    if has_prompts:
        options.require("include_prompt", True)
    modes = options.get("pooling_mode") or [mode for flag, mode in _FLAGS.items() if options.boolean(flag, False)]
    modes = [modes] if isinstance(modes, str) else modes or ["mean"]
    known = isinstance(modes, list) and len(modes) == 1 and modes[0] in _POOLINGS
    if not known:
        options.refuse("pooling_mode", modes, f"allowed: one of {', '.join(_POOLINGS)}")
    options.check()
    return _POOLINGS[modes[0]]


def _prompts(source: SourceFolder) -> tuple[dict[str, str], str | None]:
    options = source.options(source.root / "config_sentence_transformers.json")
    prompts, default = options.mapping("prompts"), options.get("default_prompt_name")
    if not all(isinstance(text, str) for text in prompts.values()):
        options.refuse("prompts", prompts, "each must be a text")
    if default is not None and default not in prompts:
        options.refuse("default_prompt_name", default, f"the prompts are {', '.join(prompts) or 'none'}")
    options.check()
    return prompts, default


def _max_input_tokens(source: SourceFolder, config: ModelConfig, report: Callable[[str], None]) -> int:
    """What is stated, special tokens included, but no more than the model has positions."""
    options = transformer_options(source)
    if options.get("max_seq_length") is not None:
        stated = options.integer("max_seq_length", minimum=3)
        options.check()
    else:
        options = source.options(source.transformer / "tokenizer_config.json")
        # Where a tokenizer has no limit, transformers writes a huge number, for some as a float.
        limit = options.get("model_max_length")
        stated = (
            int(limit) if isinstance(limit, int | float) and 3 <= limit <= config.max_seq_len else config.max_seq_len
        )
    if stated > config.max_seq_len:
        report(
            f"{options.file} allows {stated} tokens, the model has {config.max_seq_len} positions: those are the limit"
        )
    return min(stated, config.max_seq_len)
