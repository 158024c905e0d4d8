"""Mistral, Jiang et al. 2023, https://arxiv.org/abs/2310.06825: Llama with attention that slides, or did at first."""

from __future__ import annotations

from typing import Any

from model.importing import llama
from model.importing.family import Family
from model.importing.options import Options


def configure(options: Options) -> dict[str, Any]:
    """Llama without biases, and within its window."""
    fields = llama.common_fields(options) | {
        "query_key_value_bias": False,
        "attention_output_bias": False,
        "feed_forward_bias": False,
    }
    if "num_key_value_heads" not in options:
        fields["num_kv_heads"] = 8
    window = options.get("sliding_window") if "sliding_window" in options else 4096
    return fields if window is None else llama.keep_within_window(options, fields, window)


FAMILY = Family(
    task="generate", configure=configure, weights=llama.weights, renames=llama.RENAMES, ignored=llama.IGNORED
)
