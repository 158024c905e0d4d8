"""What Marian, M2M100, BART and mBART share: the names of weights and most options, from fairseq's days."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from model.config import ModelConfig
from model.importing.family import Family, Ignored, Task, Weight, linear, rows_from
from model.importing.options import Options
from model.importing.text import TextPart, TextSource

LEARNED_POSITION_OFFSET = 2
"""Rows of a table of learned positions that no token has, whatever its padding is."""

_SHARED = ("shared.weight", "decoder.embed_tokens.weight", "encoder.embed_tokens.weight")


def common_fields(options: Options) -> dict[str, Any]:
    """The fields of ModelConfig that all four have."""
    for ours, theirs in (("ffn_dim", "encoder_ffn_dim"), ("attention_heads", "encoder_attention_heads")):
        if options.get(f"decoder_{ours}") != options.get(theirs):
            options.refuse(f"decoder_{ours}", options.get(f"decoder_{ours}"), f"it must be {theirs}, which is other")
    options.require("is_encoder_decoder", True)
    ends = {name: options.get(f"{name}_token_id") for name in ("eos", "pad")}
    start = options.get("decoder_start_token_id")
    return {
        "architecture": "encoder_decoder",
        "vocab_size": options.integer("vocab_size", minimum=1),
        "d_model": options.integer("d_model", minimum=1),
        "d_ff": options.integer("encoder_ffn_dim", minimum=1),
        "num_heads": options.integer("encoder_attention_heads", minimum=1),
        "num_encoder_layers": options.integer("encoder_layers", minimum=1),
        "num_decoder_layers": options.integer("decoder_layers", minimum=1),
        "max_seq_len": options.integer("max_position_embeddings", minimum=1),
        "activation": options.activation("activation_function", "gelu"),
        "dropout": options.number("dropout", 0.1),
        "scale_embeddings": options.boolean("scale_embedding", False),
        "eos_id": 2 if ends["eos"] is None else options.integer("eos_token_id"),
        "pad_id": 1 if ends["pad"] is None else options.integer("pad_token_id"),
        # Without a start of its own, as in mBART-25, the output starts with the target's code, which is no default.
        "bos_id": options.integer("eos_token_id", 2) if start is None else options.integer("decoder_start_token_id"),
    }


def decide_by_weights(fields: dict[str, Any], named: Mapping[str, Tensor]) -> dict[str, Any]:
    """Whether the head is tied and the logits have a bias follows from the weights and not from config.json.

    A head that equals the embedding is tied, whatever is stated; a bias of zeros is none.
    """
    bias = named.get("final_logits_bias")
    return fields | {
        "tied_embeddings": not has_own_head(named, "decoder.embed_tokens.weight", *_SHARED),
        "final_bias": bias is not None and bool(bias.any()),
    }


def has_own_head(named: Mapping[str, Tensor], *embeddings: str) -> bool:
    """Whether lm_head.weight is there and differs from the embedding, which has the first of `embeddings` there is."""
    if "lm_head.weight" not in named:
        return False
    embedding = next((named[name] for name in embeddings if name in named), None)
    return embedding is not None and not same(named["lm_head.weight"], embedding)


def same(left: Tensor, right: Tensor) -> bool:
    """Equal in shape, type and every number."""
    return left.dtype == right.dtype and left.shape == right.shape and torch.equal(left, right)


def weights(config: ModelConfig) -> Iterator[Weight]:
    """The table of names, after the prefix "model." is removed."""
    head = () if not config.tied_embeddings else ("lm_head.weight",)
    if config.source_embedding == "own":
        yield Weight("embedding.token.weight", ("decoder.embed_tokens.weight",), copies=head)
        yield Weight("source_embedding.token.weight", ("encoder.embed_tokens.weight",))
    else:
        yield Weight("embedding.token.weight", _SHARED[:1], copies=(*_SHARED[1:], *head))
    if not config.tied_embeddings:
        yield Weight("projection.weight", ("lm_head.weight",))
    if config.final_bias:
        yield Weight("final_bias", ("final_logits_bias",), _flat)
    for ours, theirs in (("embedding", "decoder"), ("source_embedding", "encoder")):
        if config.positions == "learned":
            cut = rows_from(LEARNED_POSITION_OFFSET)
            yield Weight(f"{ours}.position", (f"{theirs}.embed_positions.weight",), cut)
        if config.embedding_norm:
            yield from linear(f"{ours}.norm", f"{theirs}.layernorm_embedding")
    for side, count in (("encoder", config.num_encoder_layers), ("decoder", config.num_decoder_layers)):
        for index in range(count):
            yield from _layer(side, index)
        if config.norm_order == "pre":
            yield from linear(f"{side}_norm", f"{side}.layer_norm")


def _layer(side: str, index: int) -> Iterator[Weight]:
    ours, theirs = f"{side}_layers.{index}", f"{side}.layers.{index}"
    fused = [f"{theirs}.self_attn.{name}_proj" for name in ("q", "k", "v")]
    yield from linear(f"{ours}.self_attention.query_key_value", *fused)
    yield from linear(f"{ours}.self_attention.output", f"{theirs}.self_attn.out_proj")
    yield from linear(f"{ours}.self_attention_residual.norm", f"{theirs}.self_attn_layer_norm")
    if side == "decoder":
        cross = f"{theirs}.encoder_attn"
        yield from linear(f"{ours}.cross_attention.query", f"{cross}.q_proj")
        yield from linear(f"{ours}.cross_attention.key_value", f"{cross}.k_proj", f"{cross}.v_proj")
        yield from linear(f"{ours}.cross_attention.output", f"{cross}.out_proj")
        yield from linear(f"{ours}.cross_attention_residual.norm", f"{theirs}.encoder_attn_layer_norm")
    yield from linear(f"{ours}.feed_forward.expand", f"{theirs}.fc1")
    yield from linear(f"{ours}.feed_forward.contract", f"{theirs}.fc2")
    yield from linear(f"{ours}.feed_forward_residual.norm", f"{theirs}.final_layer_norm")


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    return tensors[0].flatten()


RENAMES = ((r"^model\.", ""),)
SINUSOIDS = Ignored(r"(encoder|decoder)\.embed_positions\.weights?", "sinusoids follow from the configuration")
IGNORED = (
    Ignored(r"final_logits_bias", "it is zero everywhere"),
    Ignored(r"(encoder|decoder)\.version", "it numbers a format"),
)


def family(
    configure: Callable[[Options], dict[str, Any]],
    describe: Callable[[TextSource], TextPart],
    task: Task = "translate",
    ignored: tuple[Ignored, ...] = (),
) -> Family:
    """A family with these names of weights; it may have more to ignore."""
    return Family(
        task=task,
        configure=configure,
        weights=weights,
        decide_by_weights=decide_by_weights,
        describe=describe,
        renames=RENAMES,
        ignored=(*IGNORED, *ignored),
    )
