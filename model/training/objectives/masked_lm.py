"""Masked language modelling: hidden tokens from those around them; Devlin et al. 2019, https://arxiv.org/abs/1810.04805."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from model.checkpoint import Checkpoint
from model.config import ModelConfig
from model.data import TextFile, read_documents, read_pairs
from model.decoding import pad
from model.embedding import mean_pooled
from model.tokenizer import Tokenizer
from model.training.batches import Example, cut, move
from model.training.config import DevSource, MaskedLmConfig, TrainingConfig, TrainSource
from model.training.data import learn_tokenizer
from model.training.objectives.base import DevScore, Objective, Report, smoothed_cross_entropy
from model.transformer import Transformer

_MASKED, _RANDOM = 0.8, 0.1
"""Of the chosen tokens: masked, replaced by any other; the rest stay as they are (section 3.1)."""


class MaskedBatch(NamedTuple):
    """Padded on the right: ids with some hidden (B,S), lengths (B), labels (B,S): the chosen tokens, else padding."""

    input_ids: Tensor
    lengths: Tensor
    labels: Tensor


class MaskedLm(Objective[TextFile, TextFile, MaskedBatch]):
    """Cross-entropy of the chosen tokens; scored by their perplexity and by how many are told right.

    The output is the transposed embedding alone, so that a checkpoint is an encoder and no more, to embed with or to
    start another run from.
    """

    unit = "paragraphs"

    def __init__(
        self, config: TrainingConfig, tokenizer: Tokenizer, model_config: ModelConfig, dev: dict[str, TextFile]
    ) -> None:
        super().__init__(config, tokenizer, model_config, dev)
        assert isinstance(config.objective, MaskedLmConfig)
        self.masked_share = config.objective.masked_share
        self.mask_id = tokenizer.token_id(config.objective.mask_token)
        self.special_ids = np.array(sorted(tokenizer.special_ids))
        self.ordinary_ids = np.setdiff1d(np.arange(tokenizer.vocab_size), self.special_ids)

    @classmethod
    def read(cls, source: TrainSource, config: TrainingConfig, root: Path, report: Report) -> TextFile:
        file = _read(root / source.path)
        report(f"{source.path}: {len(file.paragraphs):,} paragraphs")
        return file

    @classmethod
    def read_dev(cls, source: DevSource, root: Path) -> TextFile:
        return _read(root / source.path, source.max_pairs)

    @classmethod
    def learn_tokenizer(cls, files: Sequence[TextFile], config: TrainingConfig) -> Tokenizer:
        assert isinstance(config.objective, MaskedLmConfig)
        texts = (text for file in files for text in file.documents)
        return learn_tokenizer(texts, config.tokenizer, [config.objective.mask_token])

    @classmethod
    def prepare_tokenizer(cls, tokenizer: Tokenizer) -> Tokenizer:
        """One that adds special tokens by itself: `</s>`, if it adds none yet."""
        return tokenizer if tokenizer.num_special_tokens else tokenizer.with_end()

    def examples(self, file: TextFile, limit: int) -> tuple[list[Example], int]:
        paragraphs = file.paragraphs
        rows = [encoding.ids for encoding in self.tokenizer.encodings(paragraphs)]
        kept = [row for row in rows if self.tokenizer.num_special_tokens < len(row) <= limit]
        return [(row,) for row in kept], len(paragraphs) - len(kept)

    def collate(self, group: Sequence[Example], generator: np.random.Generator) -> MaskedBatch:
        hidden, labels = zip(*(self.hide(row, generator) for (row,) in group), strict=True)
        lengths = torch.tensor([len(row) for row in hidden])
        return MaskedBatch(pad(hidden, self.model_config.pad_id), lengths, pad(labels, self.model_config.pad_id))

    def hide(self, row: Sequence[int], generator: np.random.Generator) -> tuple[list[int], list[int]]:
        """Choose tokens, one at least and no special one, and hide them; returns what is read, and the labels."""
        ids = np.array(row)
        ordinary = np.flatnonzero(~np.isin(ids, self.special_ids))
        chosen = generator.permutation(ordinary)[: max(1, round(self.masked_share * len(ordinary)))]
        labels = np.full_like(ids, self.model_config.pad_id)
        labels[chosen] = ids[chosen]
        fate = generator.random(len(chosen))
        any_ids = generator.choice(self.ordinary_ids, len(chosen))
        kept_or_any = np.where(fate < _MASKED + _RANDOM, any_ids, ids[chosen])
        ids[chosen] = np.where(fate < _MASKED, self.mask_id, kept_or_any)
        return ids.tolist(), labels.tolist()

    def num_labels(self, batch: MaskedBatch) -> int:
        return int((batch.labels != self.model_config.pad_id).sum())

    def loss(self, model: Transformer, batch: MaskedBatch) -> Tensor:
        logits, labels = self._predictions(model, batch)
        return smoothed_cross_entropy(logits, labels, 0.0)

    def _predictions(self, model: Transformer, batch: MaskedBatch) -> tuple[Tensor, Tensor]:
        """Logits (labels,V) and labels of the chosen tokens."""
        is_label = batch.labels != self.model_config.pad_id
        states = model.encode(batch.input_ids, batch.lengths)[is_label]
        return nn.functional.linear(states, model.embedding.token.weight).float(), batch.labels[is_label]

    @torch.inference_mode()
    def evaluate(self, checkpoint: Checkpoint) -> Iterator[DevScore]:
        device = checkpoint.model.embedding.token.weight.device
        limit = min(self.config.data.max_tokens, self.model_config.max_seq_len)
        for name, file in self.dev.items():
            generator = np.random.default_rng(0)  # the same tokens are hidden each time
            examples, _ = self.examples(file, limit)
            total, num_right, count = 0.0, 0, 0
            for group in cut(sorted(examples, key=self.length), self.config.max_batch_tokens, self.length):
                logits, labels = self._predictions(checkpoint.model, move(self.collate(group, generator), device))
                num_right += int((logits.argmax(-1) == labels).sum())
                total += nn.functional.cross_entropy(logits, labels, reduction="sum").item()
                count += len(labels)
            yield DevScore(name, {"masked_perplexity": math.exp(total / count), "masked_accuracy": num_right / count})

    def metadata(self) -> dict[str, Any]:
        return {
            "task": "embed",
            "languages": list(self.config.data.languages),
            "embedding": mean_pooled(self.model_config.max_seq_len),
        }


def _read(path: Path, max_lines: int = 0) -> TextFile:
    """Running text; or, of a file of pairs, both columns, each sentence a paragraph."""
    if ".tsv" in path.suffixes:
        pairs = read_pairs(path).pairs[: max_lines or None]
        return TextFile(path, [text for pair in pairs for text in pair])
    return read_documents(path, max_lines)
