"""The seam between the training loop and what is learned: the loop knows batches, losses and scores, no more."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from model.checkpoint import Checkpoint
from model.config import ModelConfig
from model.tokenizer import Tokenizer
from model.training.batches import Example
from model.training.config import DevSource, TrainingConfig, TrainSource
from model.transformer import Transformer

FileT = TypeVar("FileT")
DevT = TypeVar("DevT")
BatchT = TypeVar("BatchT", bound=tuple[Tensor, ...])
Report = Callable[[str], None]


class DevScore(NamedTuple):
    """The scores of one development set, by the name of the measure."""

    set: str
    values: Mapping[str, float]


class Objective(ABC, Generic[FileT, DevT, BatchT]):
    """What a run learns: what its files hold, what an example and a batch are, the loss, the scores, the description.

    A batch is a NamedTuple of tensors that share their first dimension, its rows, so that it can be cut into parts.
    """

    unit: ClassVar[str]
    """What a file holds many of, for messages."""

    def __init__(
        self, config: TrainingConfig, tokenizer: Tokenizer, model_config: ModelConfig, dev: Mapping[str, DevT]
    ) -> None:
        self.config, self.tokenizer, self.model_config, self.dev = config, tokenizer, model_config, dev

    @classmethod
    @abstractmethod
    def read(cls, source: TrainSource, config: TrainingConfig, root: Path, report: Report) -> FileT:
        """Read one training file; what is left out is reported. DataError where it cannot be used."""

    @classmethod
    @abstractmethod
    def read_dev(cls, source: DevSource, root: Path) -> DevT:
        """Read one development file."""

    @classmethod
    @abstractmethod
    def learn_tokenizer(cls, files: Sequence[FileT], config: TrainingConfig) -> Tokenizer:
        """Learn a vocabulary from the training files."""

    @classmethod
    def prepare_tokenizer(cls, tokenizer: Tokenizer) -> Tokenizer:
        """What the tokenizer of the run must be, made of the one that was learned or taken over."""
        return tokenizer

    @abstractmethod
    def examples(self, file: FileT, limit: int) -> tuple[list[Example], int]:
        """The examples of a file within `limit` tokens, and how many lines were left out as longer, or empty."""

    def prepare(self, examples: Sequence[Example], generator: np.random.Generator) -> Sequence[Example]:
        """What the examples drawn from one file become when their round begins, or the examples themselves."""
        return examples

    def length(self, example: Example) -> int:
        """The columns that an example takes in a batch."""
        return max(map(len, example))

    @abstractmethod
    def collate(self, group: Sequence[Example], generator: np.random.Generator) -> BatchT:
        """A batch of examples; what is random about it comes from `generator`, so that a resumed run repeats it."""

    @abstractmethod
    def num_labels(self, batch: BatchT) -> int:
        """How many predictions the loss of a batch sums over."""

    @abstractmethod
    def loss(self, model: Transformer, batch: BatchT) -> Tensor:
        """The loss in nats, summed over the labels of a batch, or of a part of one."""

    @abstractmethod
    def evaluate(self, checkpoint: Checkpoint) -> Iterator[DevScore]:
        """Score a checkpoint on the development sets."""

    @abstractmethod
    def metadata(self) -> dict[str, Any]:
        """The task, and what it takes to serve it, for the checkpoint's metadata."""


def smoothed_cross_entropy(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Label-smoothed cross-entropy in nats, summed: Szegedy et al. 2016, https://arxiv.org/abs/1512.00567.

    `logits` (N,V), `labels` (N). The backward pass turns the logits into their own gradient, so they are used up.
    """
    loss: Tensor = _SmoothedCrossEntropy.apply(logits, labels, smoothing)  # type: ignore[no-untyped-call]
    return loss


class _SmoothedCrossEntropy(torch.autograd.Function):
    """PyTorch's own loss crosses the logits, the largest tensor of a step, seven times; this one crosses them twice."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
        log_sums = logits.logsumexp(-1, keepdim=True)  # (N,1)
        label_logits = logits.gather(-1, labels[:, None])
        ctx.save_for_backward(logits, labels, log_sums)
        ctx.smoothing = smoothing
        likelihood = (log_sums - label_logits).sum()
        return (1 - smoothing) * likelihood + smoothing * (log_sums.sum() - logits.mean(-1).sum())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """softmax(logits) less the smoothed labels, times `gradient`."""
        logits, labels, log_sums = ctx.saved_tensors
        change = logits.detach().sub_(log_sums).exp_().sub_(ctx.smoothing / logits.shape[-1])
        labelled = torch.full((len(labels), 1), ctx.smoothing - 1, dtype=change.dtype, device=change.device)
        return change.scatter_add_(-1, labels[:, None], labelled).mul_(gradient), None, None
