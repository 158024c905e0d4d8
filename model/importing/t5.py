"""T5, Raffel et al. 2020, https://arxiv.org/abs/1910.10683: also flan-T5 and MADLAD-400; mT5 and uMT5.

Which of them divides the states by sqrt(d_model) before the projection is said by no option that all files have. T5
does unless it was saved with `tie_word_embeddings` false (or, by version 5 of transformers, with
`scale_decoder_outputs` false); mT5 never does, and uMT5 always. A head of its own is one that is in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor

from model.config import ModelConfig
from model.importing.encoder_decoder import has_own_head
from model.importing.family import Family, Ignored, Weight
from model.importing.options import Options
from model.importing.t5_text import describe

_ACTIVATIONS = {"relu": "relu", "gelu_new": "gelu_tanh", "gelu": "gelu", "silu": "silu"}

_NUM_POSITIONS = 2048
"""No position has a weight, so any length can be read. Beyond this no measurement of T5 is known."""


def _configure(options: Options, scales: Callable[[Options], bool], default_feed_forward: str) -> dict[str, Any]:
    num_layers = options.integer("num_layers", 6, minimum=1)
    decoder_layers = options.get("num_decoder_layers")
    gate, activation = _feed_forward(options, default_feed_forward)
    options.require("is_encoder_decoder", True)
    return {
        "architecture": "encoder_decoder",
        "vocab_size": options.integer("vocab_size", minimum=1),
        "d_model": options.integer("d_model", minimum=1),
        "d_ff": options.integer("d_ff", minimum=1),
        "num_heads": options.integer("num_heads", minimum=1),
        "head_dim": options.integer("d_kv", 64, minimum=1),
        "num_encoder_layers": num_layers,
        "num_decoder_layers": num_layers
        if decoder_layers is None
        else options.integer("num_decoder_layers", minimum=1),
        "max_seq_len": max(options.integer("n_positions", 512), _NUM_POSITIONS),
        "positions": "none",
        "relative_bias": "shared",
        "relative_buckets": options.integer("relative_attention_num_buckets", 32, minimum=1),
        "relative_max_distance": options.integer("relative_attention_max_distance", 128, minimum=1),
        "attention_scale": 1.0,
        "norm": "rms",
        "norm_eps": options.number("layer_norm_epsilon", 1e-6),
        "activation": activation,
        "gated_feed_forward": gate,
        "query_key_value_bias": False,
        "attention_output_bias": False,
        "feed_forward_bias": False,
        "dropout": options.number("dropout_rate", 0.1),
        "scale_embeddings": False,
        "scale_projection": scales(options),
        "final_bias": False,
        "pad_id": options.integer("pad_token_id", 0),
        "eos_id": options.integer("eos_token_id", 1),
        "bos_id": options.integer("decoder_start_token_id", options.integer("pad_token_id", 0)),
    }


def _feed_forward(options: Options, default: str) -> tuple[bool, str]:
    """Whether it is gated, and our name of its activation. "gated-gelu" means the approximation, in all of them."""
    value = options.get("feed_forward_proj")
    value = default if value is None else value
    kind, _, name = str(value).rpartition("-")
    name = "gelu_new" if value == "gated-gelu" else name
    if kind not in ("", "gated") or name not in _ACTIVATIONS:
        options.refuse("feed_forward_proj", value, f"allowed: {', '.join(_ACTIVATIONS)}, or gated- and one of them")
        return False, "relu"
    return kind == "gated", _ACTIVATIONS[name]


def _t5_scales(options: Options) -> bool:
    stated = options.get("scale_decoder_outputs")
    if stated is not None:
        return options.boolean("scale_decoder_outputs", True)
    return options.boolean("tie_word_embeddings", True)


def configure_t5(options: Options) -> dict[str, Any]:
    """The fields of ModelConfig."""
    return _configure(options, _t5_scales, "relu")


def configure_mt5(options: Options) -> dict[str, Any]:
    """The fields of ModelConfig: no scaling of the states."""
    return _configure(options, lambda _: False, "gated-gelu")


def configure_umt5(options: Options) -> dict[str, Any]:
    """The fields of ModelConfig: every layer has its own relative bias."""
    return _configure(options, lambda _: True, "gated-gelu") | {"relative_bias": "per_layer"}


def decide_by_weights(fields: dict[str, Any], named: Mapping[str, Tensor]) -> dict[str, Any]:
    """A head that is in the file and differs from the embedding is the model's own."""
    return fields | {"tied_embeddings": not has_own_head(named, *_EMBEDDINGS)}


_EMBEDDINGS = ("shared.weight", "decoder.embed_tokens.weight", "encoder.embed_tokens.weight")


def weights(config: ModelConfig) -> Iterator[Weight]:
    """The table of names: sub-layers are numbered, the feed-forward is the last of them."""
    head = ("lm_head.weight",) if config.tied_embeddings else ()
    yield Weight("embedding.token.weight", _EMBEDDINGS[:1], copies=(*_EMBEDDINGS[1:], *head))
    if not config.tied_embeddings:
        yield Weight("projection.weight", ("lm_head.weight",))
    for side, count in (("encoder", config.num_encoder_layers), ("decoder", config.num_decoder_layers)):
        for index in range(count if config.relative_bias == "per_layer" else 1):
            table = f"{side}.block.{index}.layer.0.SelfAttention.relative_attention_bias.weight"
            yield Weight(f"{side}_bias.tables.{index}.weight", (table,))
        for index in range(count):
            yield from _layer(config, side, index)
        yield Weight(f"{side}_norm.weight", (f"{side}.final_layer_norm.weight",))


def _layer(config: ModelConfig, side: str, index: int) -> Iterator[Weight]:
    ours, theirs = f"{side}_layers.{index}", f"{side}.block.{index}.layer"
    own, cross, last = f"{theirs}.0.SelfAttention", f"{theirs}.1.EncDecAttention", 2 if side == "decoder" else 1
    yield Weight(f"{ours}.self_attention.query_key_value.weight", tuple(f"{own}.{name}.weight" for name in "qkv"))
    yield Weight(f"{ours}.self_attention.output.weight", (f"{own}.o.weight",))
    yield Weight(f"{ours}.self_attention_residual.norm.weight", (f"{theirs}.0.layer_norm.weight",))
    if side == "decoder":
        yield Weight(f"{ours}.cross_attention.query.weight", (f"{cross}.q.weight",))
        yield Weight(f"{ours}.cross_attention.key_value.weight", (f"{cross}.k.weight", f"{cross}.v.weight"))
        yield Weight(f"{ours}.cross_attention.output.weight", (f"{cross}.o.weight",))
        yield Weight(f"{ours}.cross_attention_residual.norm.weight", (f"{theirs}.1.layer_norm.weight",))
    expand, gate = ("wi_1", "wi_0") if config.gated_feed_forward else ("wi", "")
    yield Weight(f"{ours}.feed_forward.expand.weight", (f"{theirs}.{last}.DenseReluDense.{expand}.weight",))
    if gate:
        yield Weight(f"{ours}.feed_forward.gate.weight", (f"{theirs}.{last}.DenseReluDense.{gate}.weight",))
    yield Weight(f"{ours}.feed_forward.contract.weight", (f"{theirs}.{last}.DenseReluDense.wo.weight",))
    yield Weight(f"{ours}.feed_forward_residual.norm.weight", (f"{theirs}.{last}.layer_norm.weight",))


_IGNORED = (
    # Files of the first releases hold one that no attention across reads.
    Ignored(r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight", "nothing reads it"),
)


def _family(configure: Callable[[Options], dict[str, Any]]) -> Family:
    return Family(
        task="translate",
        configure=configure,
        weights=weights,
        decide_by_weights=decide_by_weights,
        describe=describe,
        ignored=_IGNORED,
    )


T5, MT5, UMT5 = _family(configure_t5), _family(configure_mt5), _family(configure_umt5)
