"""RoBERTa, Liu et al. 2019, https://arxiv.org/abs/1907.11692, and, of the same shape, XLM-RoBERTa and CamemBERT."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from model.config import ModelConfig
from model.importing import bert
from model.importing.family import Family, Ignored, Weight, rows_from
from model.importing.options import Options


def configure(options: Options) -> dict[str, Any]:
    """BERT's fields, less the positions that no token ever has."""
    fields = bert.configure(options)
    fields["pad_id"] = options.integer("pad_token_id", 1)
    unused = _first_position(fields["pad_id"])
    rows = options.integer("max_position_embeddings", minimum=unused + 1)
    return fields | {"max_seq_len": rows - unused}


def weights(config: ModelConfig) -> Iterator[Weight]:
    """BERT's table of names, with the positions cut to those that tokens have."""
    cut = rows_from(_first_position(config.pad_id))
    for weight in bert.weights(config):
        yield weight._replace(transform=cut) if weight.ours == "embedding.position" else weight


def _first_position(pad_id: int) -> int:
    # fairseq counts positions from the padding's id plus one; the row before them belongs to padding.
    return pad_id + 1


FAMILY = Family(
    task="embed",
    configure=configure,
    weights=weights,
    renames=((r"^roberta\.", ""), *bert.FAMILY.renames[1:]),
    ignored=(*bert.IGNORED, Ignored(r"lm_head\..*", "the head of masked language modelling")),
)
