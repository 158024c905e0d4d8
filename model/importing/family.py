"""What a family of models is to the importer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from model.config import ModelConfig
from model.importing.options import Options
from model.importing.text import TextPart, TextSource

Transform = Callable[[Sequence[Tensor]], Tensor]
Task = Literal["embed", "generate", "translate"]


def joined(tensors: Sequence[Tensor]) -> Tensor:
    """One tensor under the other; a single one as it is."""
    return torch.cat(list(tensors))


class Weight(NamedTuple):
    """One of our weights, by its name in Transformer.state_dict(), and those of theirs that it is made of."""

    ours: str
    theirs: tuple[str, ...]
    transform: Transform = joined
    """What makes one tensor of theirs."""
    copies: tuple[str, ...] = ()
    """Further names of the same tensor, for one of theirs alone: at least one must be there, and all must be equal."""


class Ignored(NamedTuple):
    """Weights of a file that this project does not use: reported and ignored."""

    pattern: str
    """A regular expression for their whole name."""
    reason: str


@dataclass(frozen=True, kw_only=True)
class Family:
    """All that differs from family to family. Names in `weights` and `ignored` are those after `renames`."""

    task: Task
    configure: Callable[[Options], dict[str, Any]]
    """config.json -> fields of ModelConfig; what cannot be represented is refused through the options."""
    weights: Callable[[ModelConfig], Iterable[Weight]]
    decide_by_weights: Callable[[dict[str, Any], Mapping[str, Tensor]], dict[str, Any]] = lambda fields, _: fields
    """The fields, with those that the weights tell better than config.json; given by the names after `renames`."""
    describe: Callable[[TextSource], TextPart] | None = None
    """Tokenizers and metadata of an encoder-decoder."""
    renames: tuple[tuple[str, str], ...] = ()
    """Regular expressions and their replacements, for the prefix of a model with a head and for spellings of old."""
    ignored: tuple[Ignored, ...] = ()


def linear(ours: str, *theirs: str, bias: bool = True, transform: Transform = joined) -> list[Weight]:
    """A linear map or a norm, weight and bias; several of theirs are fused row by row, as query, key and value are.

    `transform` is applied to the weight alone, as a vector has no other order.
    """
    weights = [Weight(f"{ours}.weight", tuple(f"{name}.weight" for name in theirs), transform)]
    if bias:
        weights.append(Weight(f"{ours}.bias", tuple(f"{name}.bias" for name in theirs)))
    return weights


def transposed(tensors: Sequence[Tensor]) -> Tensor:
    """For weights that are stored as (inputs, outputs)."""
    return torch.cat([tensor.T for tensor in tensors])


def rows_from(first: int) -> Transform:
    """Leave out the first rows of a table."""

    def cut(tensors: Sequence[Tensor]) -> Tensor:
        return joined(tensors)[first:]

    return cut
