"""What transformers keeps beside a model that continues texts: its ends, its chat template, how to sample from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from model.config import ModelConfig
from model.importing.options import Options, token_ids
from model.importing.source import SourceFolder
from model.tokenizer import Tokenizer

_NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_SHARES = ("top_p", "typical_p", "min_p")


def describe_generation(
    source: SourceFolder, config: ModelConfig, tokenizer: Tokenizer, report: Callable[[str], None]
) -> dict[str, Any]:
    """The "generation" section of metadata.json, which the manifest carries too."""
    own = source.options(source.transformer / "tokenizer_config.json")
    special_tokens = {name: text for name in _NAMED_TOKENS if (text := _spelling(own, name))}
    section = {
        "eos_token_ids": _ends(source, special_tokens, config, tokenizer, report),
        "adds_bos": _adds_bos(own, config, tokenizer, report),
        "chat_template": _chat_template(source, own, report),
        "special_tokens": special_tokens,
        "sampling": _sampling(source),
    }
    own.check()
    return section


def _spelling(options: Options, name: str) -> str | None:
    """The text of a special token, which stands there alone or in an object."""
    value = options.get(name)
    text = value.get("content") if isinstance(value, dict) else value
    if text is not None and not isinstance(text, str):
        options.refuse(name, value, "it must be a text, or an object with a content")
        return None
    return text


def _ends(
    source: SourceFolder,
    special_tokens: dict[str, str],
    config: ModelConfig,
    tokenizer: Tokenizer,
    report: Callable[[str], None],
) -> list[int]:
    """The first file that names any: generation_config.json is what transformers generates by."""
    for name in ("generation_config.json", "config.json"):
        options = source.options(source.transformer / name)
        ids = token_ids(options, "eos_token_id")
        if unknown := [token_id for token_id in ids if token_id >= config.vocab_size]:
            options.refuse("eos_token_id", unknown, f"vocab_size is {config.vocab_size}")
        options.check()
        if ids:
            return ids
    if "eos_token" in special_tokens:
        return [tokenizer.token_id(special_tokens["eos_token"])]
    report("no file names an end token: a continuation ends at its length only")
    return []


def _adds_bos(own: Options, config: ModelConfig, tokenizer: Tokenizer, report: Callable[[str], None]) -> bool:
    around = tokenizer.encodings([""])[0].ids
    adds = bool(around) and around[0] == config.bos_id
    stated = own.get("add_bos_token")
    if stated is not None and stated != adds:
        report(
            f"{own.file} says add_bos_token {stated}, but tokenizer.json {'adds' if adds else 'does not add'} one, "
            "and is followed"
        )
    return adds


def _chat_template(source: SourceFolder, own: Options, report: Callable[[str], None]) -> str | None:
    """From a file of its own, as written since version 5, or among the tokenizer's options."""
    path = source.transformer / "chat_template.jinja"
    if path.is_file():
        return path.read_text("utf-8")
    separate = source.options(source.transformer / "chat_template.json").get("chat_template")
    template = own.get("chat_template") if separate is None else separate
    if isinstance(template, list):
        named = {entry["name"]: entry["template"] for entry in template if {"name", "template"} <= set(entry)}
        template = named.get("default")
        report(f"of the chat templates {', '.join(named)} the one called default is taken")
    if template is not None and not isinstance(template, str):
        own.refuse("chat_template", template, "it must be a text, or a list of named ones")
        return None
    return template


def _sampling(source: SourceFolder) -> dict[str, Any]:
    """What generation_config.json advises; what it leaves out, or sets to what has no effect, is left out."""
    options = source.options(source.transformer / "generation_config.json")
    advice: dict[str, Any] = {}
    if options.get("do_sample") is not None:
        advice["do_sample"] = options.boolean("do_sample", False)
    for name in ("temperature", "repetition_penalty", *_SHARES):
        if options.get(name) is None:
            continue
        value = options.number(name)
        if value < 0 or (name in _SHARES and value > 1):
            options.refuse(name, value, f"it must be {'0 to 1' if name in _SHARES else 'positive'}")
        elif value > 0:  # 0 is how some files say that it is off
            advice[name] = value
    if options.get("top_k") is not None:
        advice["top_k"] = options.integer("top_k")
    options.check()
    return advice
