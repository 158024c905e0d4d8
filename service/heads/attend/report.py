"""The answer of POST /attention as values, before it is written in any format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from model.alignment import merge_pieces
from service.engine.encode.attention import AttentionResult, Kind, Maps
from service.errors import ModelOutputError
from service.heads.attend.aggregation import Aggregate, over_heads, rollout, row_fault
from service.heads.attend.selection import Selection
from service.heads.attend.tokens import Token, TokenSequence, WordGroups, group_words
from service.heads.attend.word_alignment import WordAlignment

Axis = Literal["source", "target"]

AXES: dict[Kind, tuple[Axis, Axis]] = {
    "encoder": ("source", "source"),
    "decoder": ("target", "target"),
    "cross": ("target", "source"),
}
"""The sequences of the queries (rows) and the keys (columns) of each kind."""


@dataclass(frozen=True, slots=True)
class KindMaps:
    """The maps of one kind: `weights` is (L,H,Q,K) for `layers` and `heads`, which are None where aggregated."""

    kind: Kind
    layers: tuple[int, ...]
    heads: tuple[int, ...] | None
    weights: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class AttentionReport:
    """The attention of a model for one input.

    `source` and `target` are the axes: what the encoder and what the decoder read, tokens or words. `predictions` has
    for each row of the target what the model chose, or was made to choose, after reading it, None where that is not
    known. `text` is the translation or the continuation. Rows of `maps` sum to one unless `aggregate` is "max"; `norms`
    has their shapes.
    """

    model: str
    task: str
    text: str | None
    source: TokenSequence | None
    target: TokenSequence | None
    predictions: tuple[Token | None, ...] | None
    aggregate: Aggregate
    words: bool
    maps: tuple[KindMaps, ...]
    norms: tuple[KindMaps, ...] | None
    alignment: WordAlignment | None

    def axes(self, kind: Kind) -> tuple[TokenSequence, TokenSequence]:
        """The sequences along the rows and the columns of a kind."""
        rows, columns = (self.source if name == "source" else self.target for name in AXES[kind])
        assert rows is not None  # a model has the sequences that its maps are over
        assert columns is not None
        return rows, columns


@dataclass(frozen=True, slots=True)
class Sequences:
    """What a model read, in tokens; see `AttentionReport`."""

    source: TokenSequence | None = None
    target: TokenSequence | None = None
    predictions: tuple[Token | None, ...] | None = None
    text: str | None = None

    def lengths(self) -> dict[Axis, int]:
        return {
            "source": len(self.source) if self.source is not None else 0,
            "target": len(self.target) if self.target is not None else 0,
        }


def check_result(result: AttentionResult, sequences: Sequences, selection: Selection) -> None:
    """ModelOutputError where the engine's maps are not of these tokens, or their rows do not sum to one."""
    lengths = sequences.lengths()
    for kind in selection.kinds:
        shape = tuple(lengths[axis] for axis in AXES[kind])
        for layer, heads in result.maps[kind].items():
            check_maps(f"{kind} attention of layer {layer}", heads, shape)


def check_maps(name: str, heads: NDArray[np.float32], shape: tuple[int, ...]) -> None:
    """ModelOutputError for maps (H,Q,K) that have not the `shape` (Q,K), or rows that do not sum to one."""
    if heads.shape[1:] != shape:
        raise ModelOutputError(f"{name} has the shape {heads.shape[1:]}, not {shape}")
    if (fault := row_fault(heads)) is not None:
        raise ModelOutputError(f"{name}: {fault}")


def build_report(
    model: str,
    task: str,
    sequences: Sequences,
    selection: Selection,
    result: AttentionResult,
    alignment: WordAlignment | None,
) -> AttentionReport:
    """The selected maps, aggregated, of tokens or of words. ModelOutputError for invalid maps."""
    check_result(result, sequences, selection)
    groups: dict[Axis, WordGroups] = {}
    source, target, predictions = sequences.source, sequences.target, sequences.predictions
    if selection.words:
        if source is not None:
            groups["source"] = group_words(source)
            source = groups["source"].words
        if target is not None:
            groups["target"] = group_words(target)
            target = groups["target"].words
            # The row of a word is the mean of its tokens' rows, which chose several tokens.
            predictions = None
    norms = None
    if selection.norms:
        if result.norms is None:
            raise ModelOutputError("the engine gave no norms")
        norms = _kind_maps(result.norms, selection, groups)
    return AttentionReport(
        model=model,
        task=task,
        text=sequences.text,
        source=source,
        target=target,
        predictions=predictions,
        aggregate=selection.aggregate,
        words=selection.words,
        maps=_kind_maps(result.maps, selection, groups),
        norms=norms,
        alignment=alignment,
    )


def _kind_maps(maps: Maps, selection: Selection, groups: Mapping[Axis, WordGroups]) -> tuple[KindMaps, ...]:
    found = []
    for kind, layers in selection.layers.items():
        by_layer = _by_layer(maps[kind], layers, selection)
        if groups:
            rows, columns = (groups[axis].groups for axis in AXES[kind])
            by_layer = [merge_pieces(weights, rows, columns) for weights in by_layer]
        heads = selection.heads if selection.aggregate == "none" else None
        found.append(KindMaps(kind, layers, heads, np.stack(by_layer)))
    return tuple(found)


def _by_layer(
    maps: Mapping[int, NDArray[np.float32]], layers: Sequence[int], selection: Selection
) -> list[NDArray[np.float32]]:
    if selection.aggregate == "rollout":
        flows = rollout(maps, layers)
        return [flows[layer] for layer in layers]
    return [over_heads(maps[layer][list(selection.heads)], selection.aggregate) for layer in layers]
