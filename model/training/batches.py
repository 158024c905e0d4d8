"""Batches of token ids: which examples come when, and how they are cut into batches of like length.

The order is a pure function of the seed and of how many examples were drawn, so a resumed run sees exactly what an
uninterrupted one would have seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypedDict

import numpy as np
import torch
from torch import Tensor

from model.config import ModelConfig
from model.decoding import pad

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
        """The batch on another device."""
        return Batch(*(tensor.to(device, non_blocking=True) for tensor in self))


@dataclass
class Stream:
    """The examples of one file, in an endless sequence of shuffled passes; `drawn` is its position."""

    examples: Sequence[Example]
    seed: int
    weight: float = 1.0
    from_step: int = 0
    drawn: int = 0

    def draw(self, count: int) -> list[Example]:
        """The next `count` examples; each one comes once before any comes again."""
        drawn: list[Example] = []
        while len(drawn) < count:
            epoch, offset = divmod(self.drawn, len(self.examples))
            order = np.random.default_rng((self.seed, epoch)).permutation(len(self.examples))
            taken = order[offset : offset + count - len(drawn)]
            drawn += [self.examples[index] for index in taken]
            self.drawn += len(taken)
        return drawn


class PlanState(TypedDict):
    """Where a plan stands, in JSON values."""

    round: int
    next_batch: int
    round_start: list[int]
    """How many examples each stream had given when the round began."""
    round_step: int
    """The optimizer step at which it began: it decides which streams have joined."""


class BatchPlan:
    """An endless sequence of batches, drawn in rounds from the streams that have joined by then."""

    def __init__(
        self,
        streams: Sequence[Stream],
        max_batch_tokens: int,
        seed: int,
        model: ModelConfig,
        round_examples: int = ROUND_EXAMPLES,
    ) -> None:
        self.streams = streams
        self.max_batch_tokens, self.seed, self.round_examples = max_batch_tokens, seed, round_examples
        self.pad_id, self.bos_id, self.eos_id = model.pad_id, model.bos_id, model.eos_id
        self.restore({"round": 0, "next_batch": 0, "round_start": [0] * len(streams), "round_step": 0})

    def state(self) -> PlanState:
        """Where the plan stands, for `restore`."""
        return {
            "round": self.round,
            "next_batch": self.next_batch,
            "round_start": self.round_start,
            "round_step": self.round_step,
        }

    def restore(self, state: PlanState) -> None:
        """Stand where `state` was taken; it has one `round_start` for each stream."""
        self.round, self.next_batch = state["round"], state["next_batch"]
        self.round_start, self.round_step = list(state["round_start"]), state["round_step"]

    def batches(self, step: int) -> Iterator[Batch]:
        """Batches from where the plan stands; `step` is how many were trained on before."""
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
        shares = [s.weight * len(s.examples) if s.from_step <= self.round_step else 0.0 for s in self.streams]
        examples: list[Example] = []
        for stream, start, share in zip(self.streams, self.round_start, shares, strict=True):
            stream.drawn = start
            if share:  # at least one, or rounding would leave a small file out of every round
                examples += stream.draw(max(1, round(self.round_examples * share / sum(shares))))
        generator = np.random.default_rng((self.seed, self.round, 1))
        # A little noise in the sort keys, so that a pair meets other neighbours each time.
        noise = generator.random(len(examples))
        order = sorted(range(len(examples)), key=lambda index: (_length(examples[index]) // 2, noise[index]))
        groups = cut([examples[index] for index in order], self.max_batch_tokens)
        return [groups[index] for index in generator.permutation(len(groups))]

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


def _length(example: Example) -> int:
    return max(len(example.source), len(example.target) + 1)


def cut(examples: Sequence[Example], max_batch_tokens: int) -> list[list[Example]]:
    """Cut examples, sorted by length, into groups whose padded size (longest x count) stays within the budget.

    An example that is beyond the budget by itself makes a group of one.
    """
    groups: list[list[Example]] = []
    longest = 0
    for example in examples:
        longest = max(longest, _length(example))
        if not groups or longest * (len(groups[-1]) + 1) > max_batch_tokens:
            groups.append([])
            longest = _length(example)
        groups[-1].append(example)
    return groups
