"""GPT-2, Radford et al. 2019: the decoder before rotary positions, gates and RMSNorm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from model.config import ModelConfig
from model.importing.family import Family, Ignored, Weight, linear, transposed
from model.importing.options import Options, end_fields


def configure(options: Options) -> dict[str, Any]:
    """The fields of ModelConfig."""
    options.require("scale_attn_weights", True)
    options.require("scale_attn_by_inverse_layer_idx", False)
    options.require("add_cross_attention", False)
    d_model = options.integer("n_embd", 768, minimum=1)
    return {
        "architecture": "decoder",
        "vocab_size": options.integer("vocab_size", 50257, minimum=1),
        "d_model": d_model,
        "d_ff": 4 * d_model if options.get("n_inner") is None else options.integer("n_inner", minimum=1),
        "num_heads": options.integer("n_head", 12, minimum=1),
        "num_decoder_layers": options.integer("n_layer", 12, minimum=1),
        "max_seq_len": options.integer("n_positions", 1024, minimum=1),
        "positions": "learned",
        "activation": options.activation("activation_function", "gelu_new"),
        "dropout": options.number("resid_pdrop", 0.1),
        "norm_eps": options.number("layer_norm_epsilon", 1e-5),
        "scale_embeddings": False,
        "tied_embeddings": options.boolean("tie_word_embeddings", True),
        "final_bias": False,
        **end_fields(options),
    }


def weights(config: ModelConfig) -> Iterator[Weight]:
    """The table of names. Its linear maps are stored as (inputs, outputs), with query, key and value already fused."""
    yield Weight("embedding.token.weight", ("wte.weight",))
    yield Weight("embedding.position", ("wpe.weight",))
    for index in range(config.num_decoder_layers):
        ours, theirs = f"decoder_layers.{index}", f"h.{index}"
        yield from linear(f"{ours}.self_attention.query_key_value", f"{theirs}.attn.c_attn", transform=transposed)
        yield from linear(f"{ours}.self_attention.output", f"{theirs}.attn.c_proj", transform=transposed)
        yield from linear(f"{ours}.self_attention_residual.norm", f"{theirs}.ln_1")
        yield from linear(f"{ours}.feed_forward.expand", f"{theirs}.mlp.c_fc", transform=transposed)
        yield from linear(f"{ours}.feed_forward.contract", f"{theirs}.mlp.c_proj", transform=transposed)
        yield from linear(f"{ours}.feed_forward_residual.norm", f"{theirs}.ln_2")
    yield from linear("decoder_norm", "ln_f")
    if not config.tied_embeddings:
        yield Weight("projection.weight", ("lm_head.weight",))


FAMILY = Family(
    task="generate",
    configure=configure,
    weights=weights,
    renames=((r"^transformer\.", ""),),
    ignored=(
        Ignored(r"h\.\d+\.attn\.(masked_)?bias", "the mask of causality, which is no weight"),
        Ignored(r"lm_head\.weight", "config.json ties it to the embedding"),
    ),
)
