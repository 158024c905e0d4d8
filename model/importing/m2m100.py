"""M2M100, Fan et al. 2020, https://arxiv.org/abs/2010.11125, and NLLB, Costa-jussà et al. 2022, of the same shape."""

from __future__ import annotations

from typing import Any

from model.importing.encoder_decoder import SINUSOIDS, common_fields, family
from model.importing.m2m100_text import describe
from model.importing.options import Options


def configure(options: Options) -> dict[str, Any]:
    """The fields of ModelConfig: pre-norm, sinusoids in halves that begin behind the padding's id."""
    fields = common_fields(options)
    return fields | {
        "norm_order": "pre",
        "sinusoids": "tensor2tensor",
        "position_offset": fields["pad_id"] + 1,
        "activation": options.activation("activation_function", "relu"),
        "scale_embeddings": options.boolean("scale_embedding", True),
    }


FAMILY = family(configure, describe, ignored=(SINUSOIDS,))
