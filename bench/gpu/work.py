"""What a step or a batch must do at least: bytes to read and operations to compute, from the model's shape."""

from __future__ import annotations

from typing import NamedTuple

from model.transformer import Transformer

_BYTES = {"fp16": 2, "fp32": 4}


class Work(NamedTuple):
    """Bytes and floating-point operations in a precision."""

    precision: str
    num_bytes: float
    operations: float


def step_work(
    model: Transformer, precision: str, num_rows: int, length: float, num_sources: int = 0, source_tokens: int = 0
) -> Work:
    """One token for each of `num_rows` rows, which hold `length` positions on average.

    Every weight of the decoder is read once, and all that the caches hold; a source's keys and values are read once for
    all of its beams. A multiplication and its addition are two operations.
    """
    config, size = model.config, _BYTES[precision]
    weights = _step_parameters(model)
    width, layers = config.cache_width, config.num_decoder_layers
    cached = 2 * layers * width * (num_rows * length + num_sources * source_tokens)
    attended = 4 * layers * config.num_heads * config.head_size * num_rows * (length + source_tokens)
    return Work(precision, (weights + cached) * size, 2 * weights * num_rows + attended)


def encoder_work(model: Transformer, precision: str, num_texts: int, num_tokens: int) -> Work:
    """`num_texts` texts of `num_tokens` tokens through the encoder; states between operators are not counted."""
    config = model.config
    weights = _count(model, ("encoder_layers.", "encoder_norm."))
    attended = 4 * config.num_encoder_layers * config.num_heads * config.head_size * num_texts * num_tokens**2
    return Work(precision, weights * _BYTES[precision], 2 * weights * num_texts * num_tokens + attended)


def _step_parameters(model: Transformer) -> int:
    """Weights that a step reads: not the encoder, not what makes cross keys and values, not the table of positions."""
    projection = "embedding.token." if model.config.tied_embeddings else "projection."
    made_once = sum(
        parameter.numel() for name, parameter in model.named_parameters() if ".cross_attention.key_value." in name
    )
    return _count(model, ("decoder_layers.", "decoder_norm.", "final_bias", projection)) - made_once


def _count(model: Transformer, prefixes: tuple[str, ...]) -> int:
    return sum(parameter.numel() for name, parameter in model.named_parameters() if name.startswith(prefixes))
