"""How well a decoder foretells a text: perplexity by token and by word."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from model.checkpoint import Checkpoint
from model.decoding import pad
from model.packing import pack


class Perplexity(NamedTuple):
    """exp of the mean negative log-probability of a text, by token and by word.

    Words are what white space parts, so `per_word` compares models whatever their vocabularies. Line feeds and the ends
    of documents are foretold too and count in both sums, but are no words.
    """

    per_token: float
    per_word: float
    num_tokens: int
    num_words: int


def evaluate_text(checkpoint: Checkpoint, documents: Sequence[str]) -> Perplexity:
    """The perplexity of documents, packed as in training."""
    ids = pack(documents, checkpoint.tokenizer)
    return perplexity(token_log_probs(checkpoint, ids), documents)


def perplexity(log_probs: NDArray[np.float64], documents: Sequence[str]) -> Perplexity:
    """From the natural log-probability of every token of packed documents."""
    total, num_words = -float(log_probs.sum()), sum(len(document.split()) for document in documents)
    return Perplexity(math.exp(total / len(log_probs)), math.exp(total / num_words), len(log_probs), num_words)


@torch.inference_mode()
def token_log_probs(checkpoint: Checkpoint, ids: Sequence[int], max_batch_tokens: int = 8192) -> NDArray[np.float64]:
    """The natural log-probability of each token of a sequence after those before it; an end token stands before all.

    Windows of as many tokens as the model has positions, or as it was trained on, follow each other by half their
    length, so that a token but for the first few has at least half a window before it.
    """
    model, end_id = checkpoint.model, checkpoint.config.eos_id
    size = min(checkpoint.config.max_seq_len, checkpoint.metadata.get("context_tokens", checkpoint.config.max_seq_len))
    stride = max(1, size // 2)
    whole = [end_id, *ids]
    starts = list(range(0, max(1, len(ids) - size + stride), stride))
    device = model.embedding.token.weight.device
    results = np.empty(len(ids))
    rows_at_once = max(1, max_batch_tokens // size)
    for first in range(0, len(starts), rows_at_once):
        group = starts[first : first + rows_at_once]
        rows = pad([whole[start : start + size + 1] for start in group], checkpoint.config.pad_id, device)
        log_probs = model.project(model(rows[:, :-1])).float().log_softmax(-1)  # (B,T,V)
        told = log_probs.gather(-1, rows[:, 1:, None])[..., 0].cpu().double().numpy()
        for start, row in zip(group, told, strict=True):
            skip = 0 if start == 0 else size - stride  # scored in the window before
            end = min(start + size, len(ids))
            results[start + skip : end] = row[skip : end - start]
    return results
