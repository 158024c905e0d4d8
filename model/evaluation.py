"""BLEU and chrF of a model on sentence pairs, by sacrebleu (Post 2018, https://arxiv.org/abs/1804.08771)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import sacrebleu

from model.checkpoint import Checkpoint
from model.decoding import translate_ids
from model.training.data import source_ids


class Score(NamedTuple):
    """Corpus scores, 0 to 100, and what they were measured with."""

    bleu: float
    chrf: float
    signature: str


def translate_texts(
    checkpoint: Checkpoint,
    texts: Sequence[str],
    target_language: str,
    beam_size: int = 1,
    length_exponent: float = 1.0,
) -> list[str]:
    tokenizer = checkpoint.tokenizer
    sources = [source_ids(tokenizer, ids, target_language) for ids in tokenizer.encode_batch(texts)]
    limit = checkpoint.config.max_seq_len
    # A text beyond the model's positions is cut, as it cannot be read; the end token stays.
    sources = [ids if len(ids) <= limit else [*ids[: limit - 1], ids[-1]] for ids in sources]
    return [tokenizer.decode(ids) for ids in translate_ids(checkpoint.model, sources, beam_size, length_exponent)]


def score(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    bleu = sacrebleu.metrics.BLEU()
    chrf = sacrebleu.metrics.CHRF()
    bleu_score = bleu.corpus_score(hypotheses, [references])
    chrf_score = chrf.corpus_score(hypotheses, [references])
    return Score(bleu_score.score, chrf_score.score, str(bleu.get_signature()))
