"""Translation: each column of the pairs into the other, by teacher forcing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from model.checkpoint import Checkpoint
from model.data import PairFile, read_pairs
from model.decoding import pad
from model.evaluation import evaluate_pairs
from model.tokenizer import Tokenizer, language_tag, source_ids
from model.training.batches import Example
from model.training.config import DevSource, TrainingConfig, TrainSource
from model.training.data import encode_pairs, learn_tokenizer, read_pair_source, thin
from model.training.loss import smoothed_cross_entropy
from model.training.objectives.base import DevScore, Objective, Report
from model.transformer import Transformer


class TranslationExample(NamedTuple):
    """Token ids: the source with its tag and end, the target without begin and end."""

    source: Sequence[int]
    target: Sequence[int]


class TranslationBatch(NamedTuple):
    """Padded on the right: source (B,S), lengths (B), decoder input (B,T) after begin, labels (B,T) up to the end."""

    source_ids: Tensor
    source_lengths: Tensor
    input_ids: Tensor
    labels: Tensor


class Translation(Objective[PairFile, PairFile, TranslationBatch]):
    """Label-smoothed cross-entropy of the target, both directions of a pair; scored by greedy BLEU and chrF."""

    unit = "pairs"

    @classmethod
    def read(cls, source: TrainSource, config: TrainingConfig, root: Path, report: Report) -> PairFile:
        return read_pair_source(source, root, config.data.languages, report)

    @classmethod
    def read_dev(cls, source: DevSource, root: Path) -> PairFile:
        file = read_pairs(root / source.path)
        file.pairs = thin(file.pairs, source.max_pairs)
        return file

    @classmethod
    def learn_tokenizer(cls, files: Sequence[PairFile], config: TrainingConfig) -> Tokenizer:
        """One vocabulary for both languages, with a tag for each."""
        tags = [language_tag(code) for code in sorted(config.data.languages)]
        return learn_tokenizer((text for file in files for pair in file.pairs for text in pair), config.tokenizer, tags)

    def examples(self, file: PairFile, limit: int) -> tuple[list[Example], int]:
        """All from the first language to the second, then all back."""
        first, second = self.config.data.languages
        # Two special tokens stand beside a source, one beside a target.
        kept = encode_pairs(file.pairs, self.tokenizer, limit - 2)
        there = [TranslationExample(source_ids(self.tokenizer, a, second), b) for a, b in kept]
        back = [TranslationExample(source_ids(self.tokenizer, b, first), a) for a, b in kept]
        return [*there, *back], len(file.pairs) - len(kept)

    def length(self, example: Example) -> int:
        source, target = example
        return max(len(source), len(target) + 1)

    def collate(self, group: Sequence[Example], generator: np.random.Generator) -> TranslationBatch:
        model = self.model_config
        sources = [source for source, _ in group]
        inputs = [[model.bos_id, *target] for _, target in group]
        labels = [[*target, model.eos_id] for _, target in group]
        lengths = torch.tensor([len(source) for source in sources])
        return TranslationBatch(
            pad(sources, model.pad_id), lengths, pad(inputs, model.pad_id), pad(labels, model.pad_id)
        )

    def num_labels(self, batch: TranslationBatch) -> int:
        return int((batch.labels != self.model_config.pad_id).sum())

    def loss(self, model: Transformer, batch: TranslationBatch) -> Tensor:
        """The loss summed over the labels of a batch; padding has none."""
        states = model(batch.input_ids, batch.source_ids, batch.source_lengths)
        is_label = batch.labels != self.model_config.pad_id
        logits = model.project(states[is_label])  # (labels,V)
        return smoothed_cross_entropy(logits.float(), batch.labels[is_label], self.config.label_smoothing)

    def evaluate(self, checkpoint: Checkpoint) -> Iterator[DevScore]:
        for name, file in self.dev.items():
            for result in evaluate_pairs(checkpoint, file.pairs):
                title = f"{name} {result.source_language}-{result.target_language}"
                yield DevScore(title, {"bleu": result.score.bleu, "chrf": result.score.chrf})

    def metadata(self) -> dict[str, Any]:
        first, second = self.config.data.languages
        return {
            "task": "translate",
            "languages": [first, second],
            "directions": [[first, second], [second, first]],
        }
