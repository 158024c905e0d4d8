"""BERT, Devlin et al. 2019, https://arxiv.org/abs/1810.04805: also MiniLM, BGE, E5, GTE and others of its shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from model.config import ModelConfig
from model.importing.family import Family, Ignored, Weight, linear
from model.importing.options import Options


def configure(options: Options) -> dict[str, Any]:
    """The fields of ModelConfig."""
    options.require("position_embedding_type", "absolute")
    options.require("is_decoder", False)
    options.require("add_cross_attention", False)
    return {
        "architecture": "encoder",
        "vocab_size": options.integer("vocab_size", minimum=1),
        "d_model": options.integer("hidden_size", minimum=1),
        "d_ff": options.integer("intermediate_size", minimum=1),
        "num_heads": options.integer("num_attention_heads", minimum=1),
        "num_encoder_layers": options.integer("num_hidden_layers", minimum=1),
        "max_seq_len": options.integer("max_position_embeddings", minimum=1),
        "positions": "learned",
        "norm_order": "post",
        "activation": options.activation("hidden_act", "gelu"),
        "dropout": options.number("hidden_dropout_prob", 0.1),
        "norm_eps": options.number("layer_norm_eps", 1e-12),
        "scale_embeddings": False,
        "embedding_norm": True,
        "num_token_types": options.integer("type_vocab_size", 2),
        # Padding is masked, so that any id will do where the file names none.
        "pad_id": 0 if options.get("pad_token_id") is None else options.integer("pad_token_id"),
    }


def weights(config: ModelConfig) -> Iterator[Weight]:
    """The table of names."""
    yield Weight("embedding.token.weight", ("embeddings.word_embeddings.weight",))
    yield Weight("embedding.position", ("embeddings.position_embeddings.weight",))
    if config.num_token_types:
        yield Weight("embedding.token_type", ("embeddings.token_type_embeddings.weight",))
    yield from linear("embedding.norm", "embeddings.LayerNorm")
    for index in range(config.num_encoder_layers):
        ours, theirs = f"encoder_layers.{index}", f"encoder.layer.{index}"
        fused = [f"{theirs}.attention.self.{name}" for name in ("query", "key", "value")]
        yield from linear(f"{ours}.self_attention.query_key_value", *fused)
        yield from linear(f"{ours}.self_attention.output", f"{theirs}.attention.output.dense")
        yield from linear(f"{ours}.self_attention_residual.norm", f"{theirs}.attention.output.LayerNorm")
        yield from linear(f"{ours}.feed_forward.expand", f"{theirs}.intermediate.dense")
        yield from linear(f"{ours}.feed_forward.contract", f"{theirs}.output.dense")
        yield from linear(f"{ours}.feed_forward_residual.norm", f"{theirs}.output.LayerNorm")


IGNORED = (
    Ignored(r"embeddings\.(position_ids|token_type_ids)", "they count up or are zero"),
    Ignored(r"pooler\..*", "the pooler is for tasks over pairs of sentences; embeddings are pooled from the tokens"),
)

FAMILY = Family(
    task="embed",
    configure=configure,
    weights=weights,
    # Checkpoints that came from TensorFlow call a norm's weight and bias gamma and beta.
    renames=((r"^bert\.", ""), (r"LayerNorm\.gamma$", "LayerNorm.weight"), (r"LayerNorm\.beta$", "LayerNorm.bias")),
    ignored=(*IGNORED, Ignored(r"cls\..*", "the heads of pre-training")),
)
