"""Marian, Junczys-Dowmunt et al. 2018, https://aclanthology.org/P18-4020: the OPUS-MT models (Tiedemann 2020)."""

from __future__ import annotations

from typing import Any

from model.importing.encoder_decoder import SINUSOIDS, common_fields, family
from model.importing.marian_text import describe
from model.importing.options import Options


def configure(options: Options) -> dict[str, Any]:
    """The fields of ModelConfig: post-norm, sinusoids in halves, a bias on the logits."""
    options.require("normalize_before", False)
    options.require("normalize_embedding", False)
    options.require("add_final_layer_norm", False)
    options.require("static_position_embeddings", True)
    fields = common_fields(options) | {
        "norm_order": "post",
        "sinusoids": "halves",
        "eos_id": options.integer("eos_token_id", 0),
        "pad_id": options.integer("pad_token_id", fields_pad(options)),
    }
    if not options.boolean("share_encoder_decoder_embeddings", True):
        sizes = fields["vocab_size"], options.get("decoder_vocab_size")
        fields |= {
            "source_embedding": "own",
            "source_vocab_size": sizes[0],
            "vocab_size": sizes[0] if sizes[1] is None else options.integer("decoder_vocab_size", minimum=1),
        }
    return fields


def fields_pad(options: Options) -> int:
    """The padding is the last token where a file does not say."""
    return options.integer("vocab_size", minimum=1) - 1


FAMILY = family(configure, describe, ignored=(SINUSOIDS,))
