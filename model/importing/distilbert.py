"""DistilBERT, Sanh et al. 2019, https://arxiv.org/abs/1910.01108: BERT without token types, under other names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from model.config import ModelConfig
from model.importing.family import Family, Ignored, Weight, linear
from model.importing.options import Options


def configure(options: Options) -> dict[str, Any]:
    """The fields of ModelConfig. Sinusoidal positions are in the file too, so they are read like learned ones."""
    return {
        "architecture": "encoder",
        "vocab_size": options.integer("vocab_size", minimum=1),
        "d_model": options.integer("dim", minimum=1),
        "d_ff": options.integer("hidden_dim", minimum=1),
        "num_heads": options.integer("n_heads", minimum=1),
        "num_encoder_layers": options.integer("n_layers", minimum=1),
        "max_seq_len": options.integer("max_position_embeddings", minimum=1),
        "positions": "learned",
        "norm_order": "post",
        "activation": options.activation("activation", "gelu"),
        "dropout": options.number("dropout", 0.1),
        "norm_eps": 1e-12,  # the family has no option for it
        "scale_embeddings": False,
        "embedding_norm": True,
        # Padding is masked, so that any id will do where the file names none.
        "pad_id": 0 if options.get("pad_token_id") is None else options.integer("pad_token_id"),
    }


def weights(config: ModelConfig) -> Iterator[Weight]:
    """The table of names."""
    yield Weight("embedding.token.weight", ("embeddings.word_embeddings.weight",))
    yield Weight("embedding.position", ("embeddings.position_embeddings.weight",))
    yield from linear("embedding.norm", "embeddings.LayerNorm")
    for index in range(config.num_encoder_layers):
        ours, theirs = f"encoder_layers.{index}", f"transformer.layer.{index}"
        fused = [f"{theirs}.attention.{name}" for name in ("q_lin", "k_lin", "v_lin")]
        yield from linear(f"{ours}.self_attention.query_key_value", *fused)
        yield from linear(f"{ours}.self_attention.output", f"{theirs}.attention.out_lin")
        yield from linear(f"{ours}.self_attention_residual.norm", f"{theirs}.sa_layer_norm")
        yield from linear(f"{ours}.feed_forward.expand", f"{theirs}.ffn.lin1")
        yield from linear(f"{ours}.feed_forward.contract", f"{theirs}.ffn.lin2")
        yield from linear(f"{ours}.feed_forward_residual.norm", f"{theirs}.output_layer_norm")


FAMILY = Family(
    task="embed",
    configure=configure,
    weights=weights,
    renames=((r"^distilbert\.", ""),),
    ignored=(
        Ignored(r"embeddings\.position_ids", "they count up"),
        Ignored(r"vocab_(transform|layer_norm|projector)\..*", "the head of masked language modelling"),
    ),
)
