"""From the files of a training configuration to token ids and development pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from model.config import ModelConfig
from model.data import DataError, PairFile, read_pairs
from model.spelling import modernise_german
from model.tokenizer import EOS, Tokenizer, language_tag, train
from model.training.batches import BatchPlan, Example, Stream
from model.training.config import DevSource, PairSource, TrainingConfig
from model.training.optimizers import special_ids

Report = Callable[[str], None]


def read_source(source: PairSource, root: Path, languages: Sequence[str], report: Report) -> PairFile:
    """Read one training file; what is left out is reported."""
    file = read_pairs(root / source.path)
    if source.old_german_spelling:
        columns = [language == "de" for language in languages]
        file.pairs = [
            (modernise_german(a) if columns[0] else a, modernise_german(b) if columns[1] else b) for a, b in file.pairs
        ]
    note = "".join(f", {count} lines left out ({reason})" for reason, count in file.malformed.items())
    report(f"{source.path}: {len(file.pairs)} pairs{note}")
    return file


def train_tokenizer(files: Sequence[PairFile], config: TrainingConfig) -> Tokenizer:
    texts = (text for file in files for pair in file.pairs for text in pair)
    tags = [language_tag(code) for code in sorted(config.data.languages)]
    return train(texts, config.tokenizer.vocab_size, config.tokenizer.kind, tags)


def source_ids(tokenizer: Tokenizer, text_ids: Sequence[int], target_language: str) -> list[int]:
    """What the encoder reads: the tag of the language wanted, the text, the end."""
    return [tokenizer.token_id(language_tag(target_language)), *text_ids, tokenizer.token_id(EOS)]


def build_plan(
    files: Sequence[PairFile], tokenizer: Tokenizer, model: ModelConfig, config: TrainingConfig, report: Report
) -> BatchPlan:
    """Encode every pair in both directions and make the plan of batches."""
    limit = min(config.data.max_tokens, model.max_seq_len)
    first, second = config.data.languages
    streams = []
    for index, (file, source) in enumerate(zip(files, config.data.train, strict=True)):
        left = tokenizer.encode_batch([pair[0] for pair in file.pairs])
        right = tokenizer.encode_batch([pair[1] for pair in file.pairs])
        # Two special tokens stand beside a source, one beside a target.
        kept = [(a, b) for a, b in zip(left, right, strict=True) if a and b and max(len(a), len(b)) + 2 <= limit]
        if len(kept) < len(file.pairs):
            report(f"{source.path}: {len(file.pairs) - len(kept)} pairs left out (longer than {limit} tokens)")
        if not kept:
            raise DataError(f"{source.path}: no pair is within {limit} tokens")
        examples = [Example(source_ids(tokenizer, a, second), b) for a, b in kept]
        examples += [Example(source_ids(tokenizer, b, first), a) for a, b in kept]
        streams.append(Stream(examples, source.weight, source.from_step, seed=config.seed * 1000 + index))
    return BatchPlan(streams, config.max_batch_tokens, config.seed, special_ids(model))


def read_dev(source: DevSource, root: Path) -> list[tuple[str, str]]:
    """The pairs of a development file, thinned evenly to `max_pairs`."""
    pairs = read_pairs(root / source.path).pairs
    if source.max_pairs and len(pairs) > source.max_pairs:
        stride = len(pairs) / source.max_pairs
        pairs = [pairs[int(index * stride)] for index in range(source.max_pairs)]
    return pairs
