"""How an encoder-decoder's tokens are to be chosen: generation_config.json, or config.json where that is absent."""

from __future__ import annotations

from typing import Any

from model.importing.options import Options, token_ids
from model.importing.text import TextSource

_STOPPING = {True: "always", False: "heuristic", "never": "never"}


def generation_options(text: TextSource) -> Options:
    """The file that transformers generates by."""
    options = text.file_options("generation_config.json")
    path = text.source.transformer / "generation_config.json"
    return options if path.is_file() else text.options


def describe_decoding(text: TextSource) -> dict[str, Any]:
    """The "decoding" section of metadata.json, under Hugging Face's rules, which the files are written for."""
    options = generation_options(text)
    stopping = options.get("early_stopping")
    if stopping is not None and stopping not in _STOPPING:
        options.refuse("early_stopping", stopping, "allowed: true, false, 'never'")
        stopping = None
    bad = options.get("bad_words_ids") or []
    if not isinstance(bad, list) or not all(isinstance(ids, list) and ids for ids in bad):
        options.refuse("bad_words_ids", bad, "it must be a list of lists of token ids")
        bad = []
    single = [ids[0] for ids in bad if len(ids) == 1] + token_ids(options, "suppress_tokens")
    max_length = options.get("max_new_tokens")
    if max_length is None and options.get("max_length") is not None:
        max_length = options.integer("max_length", minimum=2) - 1  # it counts the start
    section = {
        "beam_rules": "huggingface",
        "beam_size": options.integer("num_beams", 1, minimum=1) if options.get("num_beams") is not None else 1,
        "length_penalty": options.number("length_penalty", 1.0) if options.get("length_penalty") is not None else 1.0,
        "early_stopping": _STOPPING[stopping or False],
        "forced_begin_token_id": _one(options, "forced_bos_token_id"),
        "forced_end_token_id": _one(options, "forced_eos_token_id"),
        "suppressed_token_ids": [token for token in dict.fromkeys(single) if token != text.config.eos_id],
        "bad_token_sequences": [ids for ids in bad if len(ids) > 1],
        "no_repeat_ngram_size": options.integer("no_repeat_ngram_size", 0)
        if options.get("no_repeat_ngram_size")
        else 0,
        "max_new_tokens": None if max_length is None else min(int(max_length), text.config.max_seq_len),
    }
    check_ids(options, section, text.config.vocab_size)
    options.check()
    return section


def check_ids(options: Options, section: dict[str, Any], vocab_size: int) -> None:
    """Refuse tokens that the vocabulary does not have, by name."""
    named = {
        "forced_bos_token_id": [section["forced_begin_token_id"]],
        "forced_eos_token_id": [section["forced_end_token_id"]],
        "bad_words_ids": [
            *section["suppressed_token_ids"],
            *(i for ids in section["bad_token_sequences"] for i in ids),
        ],
    }
    for name, ids in named.items():
        beyond = [token for token in ids if token is not None and not (type(token) is int and 0 <= token < vocab_size)]
        if beyond:
            options.refuse(name, beyond, f"the vocabulary has {vocab_size} tokens")


def _one(options: Options, name: str) -> int | None:
    ids = token_ids(options, name)
    if len(ids) > 1:
        options.refuse(name, ids, "one token at most can be forced")
    return ids[0] if ids else None
