"""BLEU and chrF of a model on sentence pairs, by sacrebleu (Post 2018, https://arxiv.org/abs/1804.08771).

And how many of the numbers, dates and times it keeps, which neither of them shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import sacrebleu

from model.checkpoint import Checkpoint, CheckpointError
from model.corpus.numbers import LANGUAGES, facts
from model.decoding import translate_ids
from model.translation_format import format_of


class Score(NamedTuple):
    """Corpus scores, 0 to 100, and sacrebleu's signature of how BLEU was counted."""

    bleu: float
    chrf: float
    signature: str


class NumbersKept(NamedTuple):
    """Of the pairs with a number in the reference, those whose translation has the same numbers, dates and times."""

    kept: int
    pairs: int

    @property
    def share(self) -> float:
        """Those kept as a share of 0 to 1; 1 where there are none to keep."""
        return self.kept / self.pairs if self.pairs else 1.0


class Evaluation(NamedTuple):
    """One direction of one set: what was translated, what came out, and its score."""

    source_language: str
    target_language: str
    sources: list[str]
    hypotheses: list[str]
    score: Score
    numbers: NumbersKept | None
    """None where the target language has no rules for numbers."""


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
        hypotheses = translate_texts(checkpoint, texts, (source, target), beam_size, length_penalty)
        numbers = numbers_kept(hypotheses, references, target) if target in LANGUAGES else None
        yield Evaluation(source, target, texts, hypotheses, score(hypotheses, references), numbers)


def translate_texts(
    checkpoint: Checkpoint,
    texts: Sequence[str],
    direction: tuple[str, str],
    beam_size: int = 1,
    length_penalty: float = 1.0,
) -> list[str]:
    """Translate each text by itself. One beyond the model's positions is cut, as the rest of it cannot be read.

    CheckpointError for a model whose translations begin with more than its start token.
    """
    encoder, decoder = checkpoint.tokenizer, checkpoint.target_tokenizer or checkpoint.tokenizer
    bound = format_of(checkpoint.metadata).bind(*direction, encoder, decoder)
    if bound.target_ids != (checkpoint.config.bos_id,):
        raise CheckpointError(
            f"a translation into {direction[1]!r} begins with the tokens {bound.target_ids}, the evaluation knows "
            f"{checkpoint.config.bos_id} alone"
        )
    limit = checkpoint.config.max_seq_len - bound.num_source_tokens
    rows = encoder.encode_batch([bound.text_prefix + text for text in texts])
    sources = [bound.source_ids(ids[:limit]) for ids in rows]
    return [decoder.decode(ids) for ids in translate_ids(checkpoint.model, sources, beam_size, length_penalty)]


def numbers_kept(hypotheses: Sequence[str], references: Sequence[str], language: str) -> NumbersKept:
    """How many hypotheses have just the numbers, months and times of day of their references, as values.

    "3 pm" is as good as "15:00", 1,000 as 1000, but a number too many is as wrong as one too few.
    """
    wanted = [
        (hypothesis, facts(reference, language)) for hypothesis, reference in zip(hypotheses, references, strict=True)
    ]
    numbered = [(hypothesis, found) for hypothesis, found in wanted if found]
    return NumbersKept(sum(facts(hypothesis, language) == found for hypothesis, found in numbered), len(numbered))


def score(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """BLEU (the tokenisation of mteval-v13a) and chrF2 of a corpus, one reference each."""
    bleu, chrf = sacrebleu.metrics.BLEU(), sacrebleu.metrics.CHRF()
    bleu_score = bleu.corpus_score(hypotheses, [references])
    chrf_score = chrf.corpus_score(hypotheses, [references])
    return Score(bleu_score.score, chrf_score.score, str(bleu.get_signature()))
