"""Causal language modelling: each token of running text from those before it, in packed blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from model.checkpoint import Checkpoint
from model.data import TextFile, read_documents
from model.decoding import pad
from model.packing import blocks, pack
from model.perplexity import evaluate_text
from model.tokenizer import Tokenizer
from model.training.batches import Example
from model.training.config import DevSource, TrainingConfig, TrainSource
from model.training.data import learn_tokenizer
from model.training.objectives.base import DevScore, Objective, Report, smoothed_cross_entropy
from model.transformer import Transformer


class BlockBatch(NamedTuple):
    """Blocks of text: what is read (B,T), and the token after each (B,T); only the last block of a file has padding."""

    input_ids: Tensor
    labels: Tensor


class CausalLm(Objective[TextFile, TextFile, BlockBatch]):
    """Cross-entropy of the next token (Radford et al. 2018); scored by perplexity."""

    unit = "blocks"

    @classmethod
    def read(cls, source: TrainSource, config: TrainingConfig, root: Path, report: Report) -> TextFile:
        file = read_documents(root / source.path)
        num_characters = sum(map(len, file.documents))
        report(f"{source.path}: {num_characters:,} characters in {len(file.documents)} documents")
        return file

    @classmethod
    def read_dev(cls, source: DevSource, root: Path) -> TextFile:
        return read_documents(root / source.path, source.max_pairs)

    @classmethod
    def learn_tokenizer(cls, files: Sequence[TextFile], config: TrainingConfig) -> Tokenizer:
        return learn_tokenizer((text for file in files for text in file.documents), config.tokenizer)

    def examples(self, file: TextFile, limit: int) -> tuple[list[Example], int]:
        """Blocks of `limit` tokens across the documents of a file; none is left out."""
        rows = blocks(pack(file.documents, self.tokenizer), limit, self.model_config.eos_id)
        return [(row,) for row in rows], 0

    def length(self, example: Example) -> int:
        return len(example[0]) - 1

    def collate(self, group: Sequence[Example], generator: np.random.Generator) -> BlockBatch:
        rows = pad([row for (row,) in group], self.model_config.pad_id)
        return BlockBatch(rows[:, :-1], rows[:, 1:])

    def num_labels(self, batch: BlockBatch) -> int:
        return int((batch.labels != self.model_config.pad_id).sum())

    def loss(self, model: Transformer, batch: BlockBatch) -> Tensor:
        is_label = batch.labels != self.model_config.pad_id
        logits = model.project(model(batch.input_ids)[is_label])  # (labels,V)
        return smoothed_cross_entropy(logits.float(), batch.labels[is_label], 0.0)

    def evaluate(self, checkpoint: Checkpoint) -> Iterator[DevScore]:
        for name, file in self.dev.items():
            result = evaluate_text(checkpoint, file.documents)
            yield DevScore(name, {"perplexity": result.per_token, "word_perplexity": result.per_word})

    def metadata(self) -> dict[str, Any]:
        context = min(self.config.data.max_tokens, self.model_config.max_seq_len)
        return {"task": "generate", "languages": list(self.config.data.languages), "context_tokens": context}
