"""How the files of `transformers` say what rotary positions a model has; `rope_scaling` before version 5."""

from __future__ import annotations

import math
from typing import Any

from model.importing.options import Options
from model.rotary import NO_SCALING, RotaryScaling

_KNOWN = ("default", "linear", "dynamic", "llama3", "yarn")
_PARTIAL = "partial_rotary_factor"


def rotary_fields(options: Options) -> dict[str, Any]:
    """The fields of ModelConfig that rotary positions and their length need."""
    max_seq_len = options.integer("max_position_embeddings", minimum=1)
    options.require(_PARTIAL, None, 1, 1.0)
    part = options.part("rope_parameters" if options.get("rope_parameters") else "rope_scaling")
    part.require(_PARTIAL, None, 1, 1.0)
    kind = part.get("rope_type") or part.get("type") or "default"
    if kind not in _KNOWN:
        part.refuse("rope_type", kind, f"allowed: {', '.join(_KNOWN)}")
        kind = "default"
    base = part if "rope_theta" in part else options
    if kind == "dynamic":
        options.note(
            f"texts may have {max_seq_len} tokens: beyond, the angles of dynamic scaling depend on a text's length"
        )
    return {
        "positions": "rotary",
        "max_seq_len": max_seq_len,
        "rotary_base": base.number("rope_theta", 10_000.0),
        "rotary_scaling": _scaling(kind, part, max_seq_len),
    }


def _scaling(kind: str, part: Options, max_seq_len: int) -> RotaryScaling:
    if kind in ("default", "dynamic"):
        return NO_SCALING
    factor = part.number("factor")
    if kind == "linear":
        return RotaryScaling("linear", factor)
    original = part.integer("original_max_position_embeddings", max_seq_len, minimum=1)
    if kind == "llama3":
        slow, fast = part.number("low_freq_factor"), part.number("high_freq_factor")
        return RotaryScaling("llama3", factor, original, slow, fast)
    part.require("truncate", None, True)
    return RotaryScaling(
        "yarn",
        factor,
        original,
        slow_turns=part.number("beta_slow", 1.0),
        fast_turns=part.number("beta_fast", 32.0),
        attention_factor=_attention_factor(part, factor),
    )


def _attention_factor(part: Options, factor: float) -> float:
    """As it stands, or from the factor: 0.1 ln(factor) + 1, for DeepSeek's models the ratio of two such numbers."""
    if part.get("attention_factor") is not None:
        return part.number("attention_factor")
    numerator, denominator = part.number("mscale", 0.0), part.number("mscale_all_dim", 0.0)

    def strength(scale: float) -> float:
        return 0.1 * scale * math.log(max(factor, 1.0)) + 1.0

    return strength(numerator) / strength(denominator) if numerator and denominator else strength(1.0)
