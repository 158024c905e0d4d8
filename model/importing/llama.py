"""Llama, Touvron et al. 2023, https://arxiv.org/abs/2302.13971: also SmolLM, TinyLlama and others of its shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from model.config import ModelConfig
from model.importing.family import Family, Ignored, Weight, linear
from model.importing.options import Options, end_fields
from model.importing.rope import rotary_fields


def configure(options: Options) -> dict[str, Any]:
    """The fields of ModelConfig."""
    has_bias = options.boolean("attention_bias", False)
    return common_fields(options) | {
        "query_key_value_bias": has_bias,
        "attention_output_bias": has_bias,
        "feed_forward_bias": options.boolean("mlp_bias", False),
    }


def common_fields(options: Options, default_head_dim: int = 0) -> dict[str, Any]:
    """What Llama shares with those that came after it: all but the biases. 0 is what follows from the other sizes."""
    kv_heads = 0 if options.get("num_key_value_heads") is None else options.integer("num_key_value_heads", minimum=1)
    head_dim = default_head_dim if options.get("head_dim") is None else options.integer("head_dim", minimum=1)
    return {
        "architecture": "decoder",
        "vocab_size": options.integer("vocab_size", minimum=1),
        "d_model": options.integer("hidden_size", minimum=1),
        "d_ff": options.integer("intermediate_size", minimum=1),
        "num_heads": options.integer("num_attention_heads", minimum=1),
        "num_kv_heads": kv_heads,
        "head_dim": head_dim,
        "num_decoder_layers": options.integer("num_hidden_layers", minimum=1),
        **rotary_fields(options),
        "norm": "rms",
        "activation": options.activation("hidden_act", "silu"),
        "gated_feed_forward": True,
        "dropout": 0.0,
        "norm_eps": options.number("rms_norm_eps", 1e-6),
        "scale_embeddings": False,
        "tied_embeddings": options.boolean("tie_word_embeddings", False),
        "final_bias": False,
        **end_fields(options),
    }


def keep_within_window(options: Options, fields: dict[str, Any], window: object) -> dict[str, Any]:
    """`fields`, with no more positions than the window of sliding attention: up to there it sees all, as ours does."""
    if not isinstance(window, int) or isinstance(window, bool) or window < 1:
        options.refuse("sliding_window", window, "it must be a whole number of at least 1, or null")
        return fields
    if window < fields["max_seq_len"]:
        options.note(
            f"texts may have {window} tokens, not {fields['max_seq_len']}: beyond its sliding window the model forgets"
        )
    return fields | {"max_seq_len": min(window, fields["max_seq_len"])}


def weights(config: ModelConfig) -> Iterator[Weight]:
    """The table of names."""
    yield Weight("embedding.token.weight", ("embed_tokens.weight",))
    for index in range(config.num_decoder_layers):
        ours, theirs = f"decoder_layers.{index}", f"layers.{index}"
        fused = [f"{theirs}.self_attn.{name}_proj" for name in ("q", "k", "v")]
        yield from linear(f"{ours}.self_attention.query_key_value", *fused, bias=config.query_key_value_bias)
        output = f"{theirs}.self_attn.o_proj"
        yield from linear(f"{ours}.self_attention.output", output, bias=config.attention_output_bias)
        if config.query_key_norm:
            yield Weight(f"{ours}.self_attention.query_norm.weight", (f"{theirs}.self_attn.q_norm.weight",))
            yield Weight(f"{ours}.self_attention.key_norm.weight", (f"{theirs}.self_attn.k_norm.weight",))
        yield Weight(f"{ours}.self_attention_residual.norm.weight", (f"{theirs}.input_layernorm.weight",))
        for part, name in (("gate", "gate_proj"), ("expand", "up_proj"), ("contract", "down_proj")):
            yield from linear(f"{ours}.feed_forward.{part}", f"{theirs}.mlp.{name}", bias=config.feed_forward_bias)
        yield Weight(f"{ours}.feed_forward_residual.norm.weight", (f"{theirs}.post_attention_layernorm.weight",))
    yield Weight("decoder_norm.weight", ("norm.weight",))
    if not config.tied_embeddings:
        yield Weight("projection.weight", ("lm_head.weight",))


RENAMES = ((r"^model\.", ""),)
IGNORED = (
    Ignored(r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq", "they follow from the configuration"),
    Ignored(r"lm_head\.weight", "config.json ties it to the embedding"),
)

FAMILY = Family(task="generate", configure=configure, weights=weights, renames=RENAMES, ignored=IGNORED)
