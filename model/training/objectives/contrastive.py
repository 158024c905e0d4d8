"""Contrastive learning of sentence embeddings: a pair's vectors together, those of different pairs apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from model.checkpoint import Checkpoint
from model.data import PairFile, ScoredFile
from model.decoding import pad
from model.embedding import mean_pooled
from model.embedding_evaluation import evaluate_embeddings, read_embedding_test
from model.pooling import pool
from model.tokenizer import Tokenizer
from model.training.batches import Example
from model.training.config import ContrastiveConfig, DevSource, TrainingConfig, TrainSource
from model.training.data import encode_pairs, learn_tokenizer, read_pair_source, read_scored_source, thin
from model.training.objectives.base import DevScore, Objective, Report
from model.transformer import Transformer


class PairBatch(NamedTuple):
    """Both sides of each pair with their special tokens, padded on the right: ids (B,S) and lengths (B)."""

    left_ids: Tensor
    left_lengths: Tensor
    right_ids: Tensor
    right_lengths: Tensor


class Contrastive(Objective[PairFile, PairFile | ScoredFile, PairBatch]):
    """InfoNCE over the pairs of a part of a batch; scored by retrieval among pairs and by Spearman's rho on STS."""

    unit = "pairs"

    @classmethod
    def read(cls, source: TrainSource, config: TrainingConfig, root: Path, report: Report) -> PairFile:
        if source.min_score is not None:
            return read_scored_source(source, root, report)
        return read_pair_source(source, root, config.data.languages, report)

    @classmethod
    def read_dev(cls, source: DevSource, root: Path) -> PairFile | ScoredFile:
        """Three columns are score, sentence, sentence; two are a pair."""
        file = read_embedding_test(root / source.path)
        if isinstance(file, ScoredFile):
            file.pairs = thin(file.pairs, source.max_pairs)
        else:
            file.pairs = thin(file.pairs, source.max_pairs)
        return file

    @classmethod
    def learn_tokenizer(cls, files: Sequence[PairFile], config: TrainingConfig) -> Tokenizer:
        return learn_tokenizer((text for file in files for pair in file.pairs for text in pair), config.tokenizer)

    @classmethod
    def prepare_tokenizer(cls, tokenizer: Tokenizer) -> Tokenizer:
        """One that adds special tokens by itself, so that serving needs to know none: `</s>`, if it adds none yet."""
        return tokenizer if tokenizer.num_special_tokens else tokenizer.with_end()

    def examples(self, file: PairFile, limit: int) -> tuple[list[Example], int]:
        kept = encode_pairs(file.pairs, self.tokenizer, limit, add_special_tokens=True)
        return [*kept], len(file.pairs) - len(kept)

    def collate(self, group: Sequence[Example], generator: np.random.Generator) -> PairBatch:
        left, right = ([example[side] for example in group] for side in (0, 1))
        pad_id = self.model_config.pad_id
        lengths = [torch.tensor([len(row) for row in rows]) for rows in (left, right)]
        return PairBatch(pad(left, pad_id), lengths[0], pad(right, pad_id), lengths[1])

    def num_labels(self, batch: PairBatch) -> int:
        return len(batch.left_ids)

    def loss(self, model: Transformer, batch: PairBatch) -> Tensor:
        """Summed over pairs; a pair's negatives are the other pairs of `batch`, which may be a part of a larger one."""
        assert isinstance(self.config.objective, ContrastiveConfig)
        ids = pad_to_one(batch.left_ids, batch.right_ids, self.model_config.pad_id)
        lengths = torch.cat([batch.left_lengths, batch.right_lengths])
        vectors = pool(model.encode(ids, lengths), lengths, "mean").float()
        left, right = nn.functional.normalize(vectors, dim=-1).chunk(2)
        is_same = same_rows(batch.left_ids) | same_rows(batch.right_ids)
        return info_nce(left, right, self.config.objective.temperature, is_same)

    def evaluate(self, checkpoint: Checkpoint) -> Iterator[DevScore]:
        for name, file in self.dev.items():
            for direction, measure, value in evaluate_embeddings(checkpoint, file):
                yield DevScore(f"{name} {direction}".strip(), {measure: value})

    def metadata(self) -> dict[str, Any]:
        return {
            "task": "embed",
            "languages": list(self.config.data.languages),
            "embedding": mean_pooled(self.model_config.max_seq_len),
        }


def info_nce(left: Tensor, right: Tensor, temperature: float, is_same: Tensor | None = None) -> Tensor:
    """InfoNCE with in-batch negatives, both ways, summed over pairs.

    Van den Oord et al. 2018, https://arxiv.org/abs/1807.03748, with cosines over a temperature as the critic.
    `left` and `right` (B,E) are unit vectors, row i of one belongs to row i of the other. Where `is_same` (B,B) holds
    off the diagonal, two pairs share a sentence: the one is no negative of the other and is left out.
    """
    logits = left @ right.T / temperature  # (B,B)
    if is_same is not None:
        is_other = ~torch.eye(len(left), dtype=torch.bool, device=left.device)
        logits = logits.masked_fill(is_same & is_other, -torch.inf)
    labels = torch.arange(len(left), device=left.device)
    there = nn.functional.cross_entropy(logits, labels, reduction="sum")
    back = nn.functional.cross_entropy(logits.T, labels, reduction="sum")
    return (there + back) / 2


def same_rows(ids: Tensor) -> Tensor:
    """Which rows of (B,S) are equal: (B,B)."""
    number = torch.unique(ids, dim=0, return_inverse=True)[1]
    is_same: Tensor = number[:, None] == number
    return is_same


def pad_to_one(left: Tensor, right: Tensor, pad_id: int) -> Tensor:
    """Both sides as the rows of one batch, (2B, longest)."""
    width = max(left.shape[1], right.shape[1])
    return torch.cat([nn.functional.pad(ids, (0, width - ids.shape[1]), value=pad_id) for ids in (left, right)])
