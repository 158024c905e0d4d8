"""From the files of a training configuration to examples, a vocabulary and a plan of batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from model.data import DataError, PairFile, read_pairs, read_scored_pairs
from model.spelling import modernise_german
from model.tokenizer import Tokenizer, train
from model.training.batches import BatchPlan, Stream
from model.training.config import TokenizerConfig, TrainingConfig, TrainSource

if TYPE_CHECKING:
    from model.training.objectives.base import Objective, Report

T = TypeVar("T")


def read_pair_source(source: TrainSource, root: Path, languages: Sequence[str], report: Report) -> PairFile:
    """Read one training file of pairs; what is left out is reported."""
    file = read_pairs(root / source.path)
    if source.old_german_spelling:
        first_is_german, second_is_german = (language == "de" for language in languages)
        file.pairs = [
            (
                modernise_german(first) if first_is_german else first,
                modernise_german(second) if second_is_german else second,
            )
            for first, second in file.pairs
        ]
    report(f"{source.path}: {len(file.pairs)} pairs{_left_out(file.malformed)}")
    return file


def read_scored_source(source: TrainSource, root: Path, report: Report) -> PairFile:
    """Read one training file of scored pairs and keep those from `min_score` up."""
    assert source.min_score is not None
    file = read_scored_pairs(root / source.path)
    pairs = [(pair.first, pair.second) for pair in file.pairs if pair.score >= source.min_score]
    if not pairs:
        raise DataError(f"{source.path} has no pair with a score of at least {source.min_score:g}")
    report(f"{source.path}: {len(pairs)} pairs of score {source.min_score:g} and above{_left_out(file.malformed)}")
    return PairFile(file.path, pairs, file.malformed)


def _left_out(malformed: dict[str, int]) -> str:
    return "".join(f", {count} lines left out ({reason})" for reason, count in malformed.items())


def learn_tokenizer(texts: Iterable[str], config: TokenizerConfig, extra_tokens: Sequence[str] = ()) -> Tokenizer:
    """Learn a vocabulary as the configuration says."""
    return train(texts, config.vocab_size, config.kind, extra_tokens)


def encode_pairs(
    pairs: Sequence[tuple[str, str]], tokenizer: Tokenizer, limit: int, add_special_tokens: bool = False
) -> list[tuple[list[int], list[int]]]:
    """The ids of both sides of those pairs that have 1 to `limit` tokens on each side."""
    sides = []
    for side in (0, 1):
        texts = [pair[side] for pair in pairs]
        if add_special_tokens:
            sides.append([encoding.ids for encoding in tokenizer.encodings(texts)])
        else:
            sides.append(tokenizer.encode_batch(texts))
    return [(a, b) for a, b in zip(*sides, strict=True) if a and b and max(len(a), len(b)) <= limit]


def build_plan(
    files: Sequence[Any], objective: Objective[Any, Any, Any], config: TrainingConfig, report: Report
) -> BatchPlan:
    """Make the examples of every file and the plan of batches."""
    limit = min(config.data.max_tokens, objective.model_config.max_seq_len)
    streams = []
    for index, (file, source) in enumerate(zip(files, config.data.train, strict=True)):
        examples, num_left_out = objective.examples(file, limit)
        if num_left_out:
            report(f"{source.path}: {num_left_out} {objective.unit} left out (longer than {limit} tokens, or empty)")
        if not examples:
            raise DataError(f"{source.path}: none of its {objective.unit} is within {limit} tokens")
        streams.append(Stream(examples, config.seed * 1000 + index, source.weight, source.from_step))
    return BatchPlan(streams, config.max_batch_tokens, config.seed, objective)


def thin(rows: list[T], count: int) -> list[T]:
    """`count` rows, spread evenly over all; 0 is all of them."""
    if not count or len(rows) <= count:
        return rows
    stride = len(rows) / count
    return [rows[int(index * stride)] for index in range(count)]
