"""BART, Lewis et al. 2019, https://arxiv.org/abs/1910.13461, and mBART, Liu et al. 2020, Tang et al. 2020."""

from __future__ import annotations

from typing import Any

from model.importing.bart_text import describe_bart, describe_mbart
from model.importing.encoder_decoder import common_fields, family
from model.importing.options import Options


def configure_bart(options: Options) -> dict[str, Any]:
    """The fields of ModelConfig: post-norm, learned positions and a norm of the embedding on either side."""
    options.require("normalize_before", False)
    options.require("add_final_layer_norm", False)
    return _fields(options) | {"norm_order": "post"}


def configure_mbart(options: Options) -> dict[str, Any]:
    """The same with pre-norm and norms at the ends."""
    options.require("normalize_before", True)
    options.require("add_final_layer_norm", True)
    return _fields(options) | {"norm_order": "pre"}


def _fields(options: Options) -> dict[str, Any]:
    options.require("normalize_embedding", True)
    options.require("static_position_embeddings", False)
    return common_fields(options) | {
        "positions": "learned",
        "embedding_norm": True,
        "source_embedding": "own_positions",
    }


BART = family(configure_bart, describe_bart, "generate")
MBART = family(configure_mbart, describe_mbart)
