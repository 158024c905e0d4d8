"""From the files of a training configuration to token ids and development pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from model.config import ModelConfig
from model.data import DataError, PairFile, read_pairs
from model.spelling import modernise_german
from model.tokenizer import Tokenizer, language_tag, source_ids, train
from model.training.batches import BatchPlan, Example, Stream
from model.training.config import DevSource, PairSource, TrainingConfig

Report = Callable[[str], None]


def read_source(source: PairSource, root: Path, languages: Sequence[str], report: Report) -> PairFile:
    """Read one training file; what is left out is reported."""
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
    note = "".join(f", {count} lines left out ({reason})" for reason, count in file.malformed.items())
    report(f"{source.path}: {len(file.pairs)} pairs{note}")
    return file


def train_tokenizer(files: Sequence[PairFile], config: TrainingConfig) -> Tokenizer:
    """Learn one vocabulary for both languages, with a tag for each."""
    texts = (text for file in files for pair in file.pairs for text in pair)
    tags = [language_tag(code) for code in sorted(config.data.languages)]
    return train(texts, config.tokenizer.vocab_size, config.tokenizer.kind, tags)


def build_plan(
    files: Sequence[PairFile], tokenizer: Tokenizer, model: ModelConfig, config: TrainingConfig, report: Report
) -> BatchPlan:
    """Encode every pair in both directions and make the plan of batches."""
    limit = min(config.data.max_tokens, model.max_seq_len)
    streams = []
    for index, (file, source) in enumerate(zip(files, config.data.train, strict=True)):
        examples = _examples(file, tokenizer, config.data.languages, limit)
        num_left_out = len(file.pairs) - len(examples) // 2
        if num_left_out:
            report(f"{source.path}: {num_left_out} pairs left out (longer than {limit} tokens, or empty)")
        if not examples:
            raise DataError(f"{source.path}: no pair is within {limit} tokens")
        streams.append(Stream(examples, config.seed * 1000 + index, source.weight, source.from_step))
    return BatchPlan(streams, config.max_batch_tokens, config.seed, model)


def _examples(file: PairFile, tokenizer: Tokenizer, languages: tuple[str, str], limit: int) -> list[Example]:
    """The pairs of a file within `limit` tokens: all from the first language to the second, then all back."""
    first, second = languages
    left = tokenizer.encode_batch([pair[0] for pair in file.pairs])
    right = tokenizer.encode_batch([pair[1] for pair in file.pairs])
    # Two special tokens stand beside a source, one beside a target.
    kept = [(a, b) for a, b in zip(left, right, strict=True) if a and b and max(len(a), len(b)) + 2 <= limit]
    there = [Example(source_ids(tokenizer, a, second), b) for a, b in kept]
    back = [Example(source_ids(tokenizer, b, first), a) for a, b in kept]
    return there + back


def read_dev(source: DevSource, root: Path) -> list[tuple[str, str]]:
    """The pairs of a development file, thinned evenly to `max_pairs`."""
    pairs = read_pairs(root / source.path).pairs
    if source.max_pairs and len(pairs) > source.max_pairs:
        stride = len(pairs) / source.max_pairs
        pairs = [pairs[int(index * stride)] for index in range(source.max_pairs)]
    return pairs
