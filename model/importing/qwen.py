"""Qwen2, Yang et al. 2024, https://arxiv.org/abs/2407.10671 (and 2.5), and Qwen3, https://arxiv.org/abs/2505.09388."""

from __future__ import annotations

from typing import Any

from model.importing import llama
from model.importing.family import Family
from model.importing.options import Options


def configure_qwen2(options: Options) -> dict[str, Any]:
    """Llama with biases on queries, keys and values alone."""
    fields = llama.common_fields(options) | {
        "query_key_value_bias": True,
        "attention_output_bias": False,
        "feed_forward_bias": False,
    }
    return _within_window(options, fields)


def configure_qwen3(options: Options) -> dict[str, Any]:
    """Llama with a norm over each head of queries and keys."""
    has_bias = options.boolean("attention_bias", False)
    fields = llama.common_fields(options, default_head_dim=128) | {
        "query_key_norm": True,
        "query_key_value_bias": has_bias,
        "attention_output_bias": has_bias,
        "feed_forward_bias": False,
    }
    return _within_window(options, fields)


def _within_window(options: Options, fields: dict[str, Any]) -> dict[str, Any]:
    window = options.get("sliding_window")
    if not options.boolean("use_sliding_window", False) or window is None:
        return fields
    return llama.keep_within_window(options, fields, window)


QWEN2 = Family(
    task="generate",
    configure=configure_qwen2,
    weights=llama.weights,
    renames=llama.RENAMES,
    ignored=llama.IGNORED,
)
QWEN3 = Family(
    task="generate",
    configure=configure_qwen3,
    weights=llama.weights,
    renames=llama.RENAMES,
    ignored=llama.IGNORED,
)
