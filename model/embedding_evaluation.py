"""How good embeddings are: retrieval of translations, and agreement with human judgements of likeness."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from model.checkpoint import Checkpoint
from model.data import PairFile, ScoredFile, ScoredPair, num_columns, read_pairs, read_scored_pairs
from model.embedding import embed_texts


class EmbeddingScore(NamedTuple):
    """One measure on one file; retrieval has one for each direction, such as 'en-de'."""

    direction: str
    measure: str
    value: float


def read_embedding_test(path: Path) -> PairFile | ScoredFile:
    """A file of pairs for retrieval, or of score, sentence, sentence for STS: its columns tell."""
    return read_scored_pairs(path) if num_columns(path) == 3 else read_pairs(path)


def evaluate_embeddings(checkpoint: Checkpoint, file: PairFile | ScoredFile) -> Iterator[EmbeddingScore]:
    """Retrieval accuracy both ways of a file of pairs, Spearman's rho of a file of scored pairs."""
    if isinstance(file, ScoredFile):
        yield EmbeddingScore("", "spearman", sts_spearman(checkpoint, file.pairs))
        return
    there, back = retrieval_accuracy(checkpoint, file.pairs)
    languages = checkpoint.metadata.get("languages", [])
    first, second = languages if len(languages) == 2 else ("first", "second")
    yield EmbeddingScore(f"{first}-{second}", "accuracy", there)
    yield EmbeddingScore(f"{second}-{first}", "accuracy", back)


def retrieval_accuracy(checkpoint: Checkpoint, pairs: Sequence[tuple[str, str]]) -> tuple[float, float]:
    """The share of sentences whose nearest of all sentences of the other column is their own: there, and back.

    Artetxe and Schwenk 2019, https://arxiv.org/abs/1812.10464, section 4.3, by cosine.
    """
    cosines = embed_texts(checkpoint, [a for a, _ in pairs]) @ embed_texts(checkpoint, [b for _, b in pairs]).T
    own = np.arange(len(pairs))
    return float((cosines.argmax(1) == own).mean()), float((cosines.argmax(0) == own).mean())


def sts_spearman(checkpoint: Checkpoint, pairs: Sequence[ScoredPair]) -> float:
    """Spearman's rho between the cosines of sentence pairs and their scores (Cer et al. 2017, STS benchmark)."""
    first = embed_texts(checkpoint, [pair.first for pair in pairs])
    second = embed_texts(checkpoint, [pair.second for pair in pairs])
    return spearman((first * second).sum(1), [pair.score for pair in pairs])


def spearman(left: ArrayLike, right: ArrayLike) -> float:
    """Spearman's rank correlation: Pearson's, of ranks, where equal values share the mean of their ranks.

    NaN where one side is constant, as then nothing is ranked.
    """
    first, second = (_ranks(np.asarray(values)) for values in (left, right))
    if (first == first[0]).all() or (second == second[0]).all():
        return float("nan")
    return float(np.corrcoef(first, second)[0, 1])


def _ranks(values: NDArray[np.generic]) -> NDArray[np.float64]:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = counts.cumsum()  # the rank of the last of each group of equal values, counted from 1
    return np.asarray((last - (counts - 1) / 2)[place], np.float64)
