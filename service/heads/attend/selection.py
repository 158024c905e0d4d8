"""Which maps a request selects, and the limits on their size, checked before they are computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from service.engine.encode.attention import Kind
from service.errors import InputError
from service.heads.attend.aggregation import Aggregate
from service.heads.attend.support import AttentionSupport

KindChoice = Literal["encoder", "decoder", "cross", "all"]

_TELLING: tuple[Kind, ...] = ("cross", "encoder", "decoder")
"""The default kind: the first of these that the model has."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """The selection of a request; None is the default of the model."""

    kind: KindChoice | None = None
    layers: tuple[int, ...] | None = None
    heads: tuple[int, ...] | None = None
    aggregate: Aggregate = "none"
    norms: bool = False
    words: bool = False


@dataclass(frozen=True, slots=True)
class Selection:
    """The maps of an answer: `layers` of each kind, and `heads` of each layer, which are one map where aggregated."""

    layers: Mapping[Kind, tuple[int, ...]]
    heads: tuple[int, ...]
    aggregate: Aggregate
    norms: bool
    words: bool

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return tuple(self.layers)

    @property
    def num_maps(self) -> int:
        """How many maps each layer has."""
        return len(self.heads) if self.aggregate == "none" else 1

    def needed_layers(self) -> set[int]:
        """The layers that the engine must give; a rollout multiplies all layers from the first."""
        if self.aggregate == "rollout":
            return set(range(max(layer for layers in self.layers.values() for layer in layers) + 1))
        return {layer for layers in self.layers.values() for layer in layers}


def select(wishes: Wishes, support: AttentionSupport, model_name: str) -> Selection:
    """What `wishes` mean for a model. InputError names what it does not have, and what it has."""
    kinds = _kinds(wishes.kind, support, model_name)
    if wishes.aggregate == "rollout":
        _check_rollout(wishes, kinds)
    layers = {kind: _layers(wishes.layers, kind, support, model_name) for kind in kinds}
    num_heads = support.config.num_heads
    heads = wishes.heads if wishes.heads is not None else tuple(range(num_heads))
    for head in heads:
        if not 0 <= head < num_heads:
            raise InputError(
                f"`heads` has {head}, but each layer of the model {model_name} has {num_heads} heads: allowed are 0 to "
                f"{num_heads - 1}",
                parameter="heads",
            )
    return Selection(layers, heads, wishes.aggregate, wishes.norms, wishes.words)


def _kinds(wish: KindChoice | None, support: AttentionSupport, model_name: str) -> tuple[Kind, ...]:
    if wish is None:
        return (next(kind for kind in _TELLING if kind in support.kinds),)
    if wish == "all":
        return support.kinds
    if wish not in support.kinds:
        raise InputError(
            f"`kind` is {wish!r}, but the model {model_name} has the attention: {', '.join(support.kinds)}",
            parameter="kind",
        )
    return (wish,)


def _check_rollout(wishes: Wishes, kinds: Sequence[Kind]) -> None:
    if "cross" in kinds:
        raise InputError(
            "`aggregate` is 'rollout', which follows self-attention from layer to layer; cross-attention reads the "
            "same source in every layer. Allowed with it: kind encoder or decoder",
            parameter="aggregate",
        )
    if wishes.heads is not None:
        raise InputError("`heads` cannot be chosen with aggregate rollout, which averages them all", parameter="heads")
    if wishes.norms:
        raise InputError(
            "`norms` cannot be had with aggregate rollout, which multiplies shares of a whole", parameter="norms"
        )


def _layers(wish: tuple[int, ...] | None, kind: Kind, support: AttentionSupport, model_name: str) -> tuple[int, ...]:
    num_layers = support.num_layers(kind)
    if wish is None:
        return tuple(range(num_layers))
    for layer in wish:
        if not 0 <= layer < num_layers:
            raise InputError(
                f"`layers` has {layer}, but the model {model_name} has {num_layers} layers of {kind} attention: "
                f"allowed are 0 to {num_layers - 1}",
                parameter="layers",
            )
    return wish


@dataclass(frozen=True, slots=True)
class Outline:
    """The size of an answer that is still to be computed: its maps, and the labels of their axes.

    A sequence that does not exist yet, such as a translation, counts as the shortest that it can be.
    """

    selection: Selection
    source: Sequence[str]
    target: Sequence[str]

    def labels(self, kind: Kind) -> tuple[Sequence[str], Sequence[str]]:
        """Those of the queries and of the keys."""
        if kind == "cross":
            return self.target, self.source
        return (self.source, self.source) if kind == "encoder" else (self.target, self.target)

    def num_values(self) -> int:
        """The numbers in the answer, at most: words are fewer than their tokens."""
        total = sum(
            len(layers) * self.selection.num_maps * len(self.labels(kind)[0]) * len(self.labels(kind)[1])
            for kind, layers in self.selection.layers.items()
        )
        return total * (2 if self.selection.norms else 1)

    def __str__(self) -> str:
        """The product, for messages."""
        parts = []
        for kind, layers in self.selection.layers.items():
            queries, keys = (len(labels) for labels in self.labels(kind))
            parts.append(f"{kind} {len(layers)} layers x {self.selection.num_maps} maps x {queries} x {keys}")
        return " + ".join(parts) + (", twice for the norms" if self.selection.norms else "")


def check_num_values(outline: Outline, limit: int) -> None:
    """InputError for an answer with too many numbers."""
    if (num_values := outline.num_values()) > limit:
        raise InputError(
            f"the maps would hold {num_values} numbers ({outline}), allowed: {limit}. Ask for fewer layers or heads, "
            "aggregate them, or take a shorter text",
            parameter="layers",
        )


def check_num_tokens(name: str, num_tokens: int, limit: int) -> None:
    """InputError for a sequence that is too long."""
    if num_tokens > limit:
        raise InputError(f"`{name}` has {num_tokens} tokens, special ones included, allowed: {limit}", parameter=name)
