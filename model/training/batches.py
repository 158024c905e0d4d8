"""Batches of token ids: which examples come when, and how they are cut into batches of like length.

The order is a pure function of the seed and of how many examples were drawn, so a resumed run sees exactly what an
uninterrupted one would have seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypedDict, TypeVar

import numpy as np
import torch
from torch import Tensor

ROUND_EXAMPLES = 32_768
"""Examples that are drawn, sorted by length and cut into batches together."""


Example = tuple[Any, ...]
"""Rows of token ids, or text that becomes such rows in `Collator.prepare`: the objective's business."""
BatchT = TypeVar("BatchT", bound=tuple[Tensor, ...])


class Collator(Protocol):
    """What makes batches of examples: an objective."""

    def prepare(self, examples: Sequence[Example], generator: np.random.Generator) -> Sequence[Example]:
        """What the examples drawn from one stream become before they are sorted by length, or the examples."""

    def length(self, example: Example) -> int:
        """The columns that an example takes in a batch."""

    def collate(self, group: Sequence[Example], generator: np.random.Generator) -> Any:
        """A batch of examples, a NamedTuple of tensors that share their rows."""


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
    """The position in a plan, as JSON values."""

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
        collator: Collator,
        round_examples: int = ROUND_EXAMPLES,
    ) -> None:
        self.streams, self.collator = streams, collator
        self.max_batch_tokens, self.seed, self.round_examples = max_batch_tokens, seed, round_examples
        self.restore({"round": 0, "next_batch": 0, "round_start": [0] * len(streams), "round_step": 0})

    def state(self) -> PlanState:
        """The position in the plan, for `restore`."""
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

    def batches(self, step: int) -> Iterator[Any]:
        """Batches from where the plan stands; `step` is how many were trained on before."""
        while True:
            if self.next_batch == 0:
                self.round_step = step
            groups = self._round()
            while self.next_batch < len(groups):
                group = groups[self.next_batch]
                self.next_batch += 1
                step += 1
                # A generator of its own, so that what is random about a batch depends on no other one.
                yield self.collator.collate(group, np.random.default_rng((self.seed, self.round, 2, self.next_batch)))
            self.round_start = [stream.drawn for stream in self.streams]
            self.round, self.next_batch = self.round + 1, 0

    def _round(self) -> list[list[Example]]:
        shares = [s.weight * len(s.examples) if s.from_step <= self.round_step else 0.0 for s in self.streams]
        examples: list[Example] = []
        for index, (stream, start, share) in enumerate(zip(self.streams, self.round_start, shares, strict=True)):
            stream.drawn = start
            if share:  # at least one, or rounding would leave a small file out of every round
                drawn = stream.draw(max(1, round(self.round_examples * share / sum(shares))))
                examples += self.collator.prepare(drawn, np.random.default_rng((self.seed, self.round, 3, index)))
        generator = np.random.default_rng((self.seed, self.round, 1))
        # Noise in the sort keys, so that pairs are batched with others each time.
        noise = generator.random(len(examples))
        length = self.collator.length
        order = sorted(range(len(examples)), key=lambda index: (length(examples[index]) // 2, noise[index]))
        groups = cut([examples[index] for index in order], self.max_batch_tokens, length)
        return [groups[index] for index in generator.permutation(len(groups))]


def move(batch: BatchT, device: torch.device) -> BatchT:
    """The batch on another device."""
    return type(batch)(*(tensor.to(device, non_blocking=True) for tensor in batch))


def num_positions(batch: tuple[Tensor, ...]) -> int:
    """How many positions a batch has, padding included: its rows times its longest row."""
    return len(batch[0]) * max(tensor.shape[1] for tensor in batch if tensor.ndim == 2)


def split(batch: BatchT, max_tokens: int) -> list[BatchT]:
    """Cut a batch by rows into equal parts of at most about `max_tokens` padded tokens (0: leave it whole)."""
    num_tokens = num_positions(batch)
    if not max_tokens or num_tokens <= max_tokens:
        return [batch]
    num_parts = min(len(batch[0]), -(-num_tokens // max_tokens))
    parts = zip(*(tensor.tensor_split(num_parts) for tensor in batch), strict=True)
    return [type(batch)(*part) for part in parts]


def cut(examples: Sequence[Example], max_batch_tokens: int, length: Callable[[Example], int]) -> list[list[Example]]:
    """Cut examples, sorted by length, into groups whose padded size (longest x count) stays within the budget.

    An example that is beyond the budget by itself makes a group of one.
    """
    groups: list[list[Example]] = []
    longest = 0
    for example in examples:
        longest = max(longest, length(example))
        if not groups or longest * (len(groups[-1]) + 1) > max_batch_tokens:
            groups.append([])
            longest = length(example)
        groups[-1].append(example)
    return groups
