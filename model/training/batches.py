"""Batches of token ids: which examples come when, and how they are cut into batches of like length.

The order is a pure function of the seed and of how many examples were drawn, so a resumed run sees exactly what an
uninterrupted one would have seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

ROUND_EXAMPLES = 32_768
"""Examples that are drawn, sorted by length and cut into batches together."""


class Example(NamedTuple):
    """Token ids: the source with its tag and end, the target without begin and end."""

    source: Sequence[int]
    target: Sequence[int]


class Batch(NamedTuple):
    """Padded on the right: source (B,S), lengths (B), decoder input (B,T) after begin, labels (B,T) up to the end."""

    source_ids: Tensor
    source_lengths: Tensor
    input_ids: Tensor
    labels: Tensor

    def to(self, device: torch.device) -> Batch:
        return Batch(*(tensor.to(device, non_blocking=True) for tensor in self))


@dataclass
class Stream:
    """The examples of one file, in an endless sequence of shuffled passes; `drawn` is its position."""

    examples: Sequence[Example]
    weight: float
    from_step: int
    seed: int
    drawn: int = 0

    def draw(self, count: int) -> list[Example]:
        drawn: list[Example] = []
        while len(drawn) < count:
            epoch, offset = divmod(self.drawn, len(self.examples))
            order = np.random.default_rng((self.seed, epoch)).permutation(len(self.examples))
            taken = order[offset : offset + count - len(drawn)]
            drawn += [self.examples[index] for index in taken]
            self.drawn += len(taken)
        return drawn


class BatchPlan:
    """An endless sequence of batches, drawn in rounds from the streams that have joined by then."""

    def __init__(self, streams: Sequence[Stream], max_batch_tokens: int, seed: int, special_ids: tuple[int, int, int]) -> None:
        self.streams = streams
        self.max_batch_tokens = max_batch_tokens
        self.seed = seed
        self.pad_id, self.bos_id, self.eos_id = special_ids
        self.round = 0
        self.next_batch = 0
        self.round_start = [0] * len(streams)
        self.round_step = 0

    def state(self) -> dict[str, object]:
        """Where the plan stands, for `restore`."""
        return {
            "round": self.round,
            "next_batch": self.next_batch,
            "round_start": self.round_start,
            "round_step": self.round_step,
        }

    def restore(self, state: dict[str, object]) -> None:
        self.round, self.next_batch = int(state["round"]), int(state["next_batch"])  # type: ignore[call-overload]
        self.round_step = int(state["round_step"])  # type: ignore[call-overload]
        # A file that was added to the mix since starts at its beginning.
        starts = list(state["round_start"])  # type: ignore[call-overload]
        self.round_start = starts + [0] * (len(self.streams) - len(starts))

    def batches(self, step: int) -> Iterator[Batch]:
        """Batches from where the plan stands; `step` is the optimizer step of the first."""
        while True:
            if self.next_batch == 0:
                self.round_step = step
            groups = self._round()
            while self.next_batch < len(groups):
                group = groups[self.next_batch]
                self.next_batch += 1
                step += 1
                yield self._collate(group)
            self.round_start = [stream.drawn for stream in self.streams]
            self.round, self.next_batch = self.round + 1, 0

    def _round(self) -> list[list[Example]]:
        active = [stream.weight * len(stream.examples) * (stream.from_step <= self.round_step) for stream in self.streams]
        examples: list[Example] = []
        for stream, start, share in zip(self.streams, self.round_start, active, strict=True):
            stream.drawn = start
            examples += stream.draw(round(ROUND_EXAMPLES * share / sum(active)))
        generator = np.random.default_rng((self.seed, self.round, 1))
        # A little noise in the sort keys, so that a pair meets other neighbours each time.
        noise = generator.random(len(examples))
        order = sorted(range(len(examples)), key=lambda i: (_length(examples[i]) // 2, noise[i]))
        groups = _cut([examples[i] for i in order], self.max_batch_tokens)
        return [groups[i] for i in generator.permutation(len(groups))]

    def _collate(self, group: Sequence[Example]) -> Batch:
        sources = [example.source for example in group]
        inputs = [[self.bos_id, *example.target] for example in group]
        labels = [[*example.target, self.eos_id] for example in group]
        lengths = torch.tensor([len(source) for source in sources])
        return Batch(pad(sources, self.pad_id), lengths, pad(inputs, self.pad_id), pad(labels, self.pad_id))


def split(batch: Batch, max_tokens: int) -> list[Batch]:
    """Cut a batch by rows into equal parts of at most about `max_tokens` padded tokens (0: leave it whole)."""
    num_rows, width = len(batch.labels), max(batch.labels.shape[1], batch.source_ids.shape[1])
    if not max_tokens or num_rows * width <= max_tokens:
        return [batch]
    num_parts = min(num_rows, -(-num_rows * width // max_tokens))
    parts = zip(*(tensor.tensor_split(num_parts) for tensor in batch), strict=True)
    return [Batch(*part) for part in parts]


def pad(rows: Sequence[Sequence[int]], pad_id: int) -> Tensor:
    """Rows of ids -> (B, longest) int64, padded on the right."""
    width = max(len(row) for row in rows)
    padded = np.full((len(rows), width), pad_id, dtype=np.int64)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = row
    return torch.from_numpy(padded)


def _length(example: Example) -> int:
    return max(len(example.source), len(example.target) + 1)


def _cut(examples: Sequence[Example], max_batch_tokens: int) -> list[list[Example]]:
    """Cut examples, sorted by length, into groups whose padded size (longest x count) stays within the budget."""
    groups: list[list[Example]] = []
    longest = 0
    for example in examples:
        longest = max(longest, _length(example))
        if not groups or longest * (len(groups[-1]) + 1) > max_batch_tokens:
            groups.append([])
            longest = _length(example)
        groups[-1].append(example)
    return groups
