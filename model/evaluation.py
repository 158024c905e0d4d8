"""BLEU and chrF of a model on sentence pairs, by sacrebleu (Post 2018, https://arxiv.org/abs/1804.08771)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import sacrebleu

from model.checkpoint import Checkpoint, CheckpointError
from model.decoding import translate_ids
from model.tokenizer import source_ids


class Score(NamedTuple):
    """Corpus scores, 0 to 100, and sacrebleu's signature of how BLEU was counted."""

    bleu: float
    chrf: float
    signature: str


class Evaluation(NamedTuple):
    """One direction of one set: what was translated, what came out, and its score."""

    source_language: str
    target_language: str
    sources: list[str]
    hypotheses: list[str]
    score: Score


def evaluate_pairs(
    checkpoint: Checkpoint, pairs: Sequence[tuple[str, str]], beam_size: int = 1, length_penalty: float = 1.0
) -> Iterator[Evaluation]:
    """Translate pairs, whose columns are the checkpoint's languages, in each of its directions, and score them."""
    if checkpoint.metadata.get("task") != "translate":
        raise CheckpointError(f"the checkpoint's task is {checkpoint.metadata.get('task')!r}, BLEU needs 'translate'")
    languages = checkpoint.metadata["languages"]
    for source, target in checkpoint.metadata["directions"]:
        texts = [pair[languages.index(source)] for pair in pairs]
        references = [pair[languages.index(target)] for pair in pairs]
        hypotheses = translate_texts(checkpoint, texts, target, beam_size, length_penalty)
        yield Evaluation(source, target, texts, hypotheses, score(hypotheses, references))


def translate_texts(
    checkpoint: Checkpoint,
    texts: Sequence[str],
    target_language: str,
    beam_size: int = 1,
    length_penalty: float = 1.0,
) -> list[str]:
    """Translate each text by itself. One beyond the model's positions is cut, as the rest of it cannot be read."""
    tokenizer, limit = checkpoint.tokenizer, checkpoint.config.max_seq_len
    # The tag and the end stand beside the text.
    sources = [source_ids(tokenizer, ids[: limit - 2], target_language) for ids in tokenizer.encode_batch(texts)]
    return [tokenizer.decode(ids) for ids in translate_ids(checkpoint.model, sources, beam_size, length_penalty)]


def score(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """BLEU (the tokenisation of mteval-v13a) and chrF2 of a corpus, one reference each."""
    bleu, chrf = sacrebleu.metrics.BLEU(), sacrebleu.metrics.CHRF()
    bleu_score = bleu.corpus_score(hypotheses, [references])
    chrf_score = chrf.corpus_score(hypotheses, [references])
    return Score(bleu_score.score, chrf_score.score, str(bleu.get_signature()))
