"""Sentence embeddings in PyTorch: for scoring a model while and after it is trained. Serving has its own engine."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from model.checkpoint import Checkpoint, CheckpointError
from model.decoding import pad
from model.pooling import Pooling, pool
from model.tokenizer import Tokenizer

Vectors = NDArray[np.float32]


@torch.inference_mode()
def embed_texts(checkpoint: Checkpoint, texts: Sequence[str], max_batch_tokens: int = 8192) -> Vectors:
    """Unit vectors (N,E), in the texts' order. A text beyond the model's positions is cut, its special tokens kept.

    CheckpointError where the checkpoint is for another task, or a text is nothing to its tokenizer.
    """
    settings = embedding_settings(checkpoint)
    limit = min(checkpoint.config.max_seq_len, settings["max_input_tokens"])
    prompt = settings["prompts"].get(settings["default_prompt_name"], "")
    rows = input_ids(checkpoint.tokenizer, [prompt + text for text in texts], limit)
    vectors = np.empty((len(rows), checkpoint.config.d_model), np.float32)
    device = checkpoint.model.embedding.token.weight.device
    for group in _groups(rows, max_batch_tokens):
        lengths = torch.tensor([len(rows[index]) for index in group], device=device)
        states = checkpoint.model.encode(pad([rows[i] for i in group], checkpoint.config.pad_id, device), lengths)
        pooled = nn.functional.normalize(pool(states, lengths, settings["pooling"]), dim=-1)
        vectors[group] = pooled.cpu().numpy()
    return vectors


def mean_pooled(max_input_tokens: int) -> dict[str, Any]:
    """The metadata's `embedding` of an encoder that is trained here."""
    return {
        "pooling": "mean",
        "normalize": True,
        "prompts": {},
        "default_prompt_name": None,
        "max_input_tokens": max_input_tokens,
    }


def embedding_settings(checkpoint: Checkpoint) -> dict[str, Any]:
    """The metadata's `embedding`; CheckpointError where there is none, or its pooling is unknown."""
    settings: dict[str, Any] | None = checkpoint.metadata.get("embedding")
    if checkpoint.metadata.get("task") != "embed" or settings is None:
        task = checkpoint.metadata.get("task")
        raise CheckpointError(f"the checkpoint's task is {task!r}, embeddings need 'embed' and its settings")
    if settings["pooling"] not in get_args(Pooling):
        raise CheckpointError(f"pooling is {settings['pooling']!r}, allowed: {', '.join(get_args(Pooling))}")
    return settings


def input_ids(tokenizer: Tokenizer, texts: Sequence[str], limit: int) -> list[list[int]]:
    """The ids of each text with its special tokens, cut to `limit`; those at the end stand behind the cut."""
    rows = []
    for text, encoding in zip(texts, tokenizer.encodings(texts, with_offsets=False), strict=True):
        if not encoding.ids:
            raise CheckpointError(f"the tokenizer has no token for the text {text!r}")
        num_last = next((len(list(run)) for mark, run in groupby(reversed(encoding.special_tokens_mask)) if mark), 0)
        if not encoding.special_tokens_mask[-1]:
            num_last = 0
        ids = encoding.ids
        rows.append(ids if len(ids) <= limit else ids[: limit - num_last] + ids[len(ids) - num_last :])
    return rows


def _groups(rows: Sequence[Sequence[int]], max_batch_tokens: int) -> list[list[int]]:
    """Indices of rows of like length, each group within the budget when padded."""
    groups: list[list[int]] = []
    for index in sorted(range(len(rows)), key=lambda index: -len(rows[index])):
        longest = len(rows[groups[-1][0]]) if groups else 0
        if not groups or longest * (len(groups[-1]) + 1) > max_batch_tokens:
            groups.append([])
        groups[-1].append(index)
    return groups
