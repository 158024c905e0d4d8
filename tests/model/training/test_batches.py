from collections import Counter
from collections.abc import Sequence
from itertools import islice

import numpy as np
import pytest
import torch

from model.decoding import pad
from model.training.batches import BatchPlan, Example, Stream, cut, split
from model.training.objectives.translation import Translation, TranslationBatch, TranslationExample
from tests.model.samples import make_config, random_rows, tiny_tokenizer, training_config

CONFIG = make_config(vocab_size=1000)


class Prepared(Translation):
    """Of examples that are tokens already."""

    def prepare(self, examples: Sequence[Example], generator: np.random.Generator) -> Sequence[Example]:
        return examples


TRANSLATION = Prepared(training_config(), tiny_tokenizer(), CONFIG, {})


def examples(count: int, first_id: int = 10, seed: int = 0) -> list[Example]:
    """Examples whose first source id is their own, so that each can be told from the others."""
    lengths = [1 + (index * 7 + seed) % 11 for index in range(count)]
    rows = random_rows(lengths, 1000, seed)
    return [TranslationExample([first_id + index, *row], row) for index, row in enumerate(rows)]


def plan(*streams: Stream, seed: int = 1, round_examples: int = 32) -> BatchPlan:
    return BatchPlan(streams, 64, seed, TRANSLATION, round_examples)


def seen(batches: Sequence[TranslationBatch]) -> list[int]:
    return [int(first) for batch in batches for first in batch.source_ids[:, 0]]


def same(left: Sequence[TranslationBatch], right: Sequence[TranslationBatch]) -> bool:
    pairs = [(a, b) for one, other in zip(left, right, strict=True) for a, b in zip(one, other, strict=True)]
    return all(torch.equal(a, b) for a, b in pairs)


def test_every_example_comes_once_a_pass() -> None:
    stream = Stream(examples(32), seed=3)
    batches = plan(stream).batches(0)
    for number in range(1, 4):
        ids: list[int] = []
        while len(ids) < 32:
            ids += seen([next(batches)])
        assert sorted(ids) == list(range(10, 42)), f"pass {number}"


def test_a_stream_draws_each_example_once_before_any_comes_again() -> None:
    stream = Stream(examples(7), seed=3)
    drawn = [example[0][0] for count in (3, 5, 4, 2) for example in stream.draw(count)]
    assert sorted(drawn[:7]) == sorted(drawn[7:]) == list(range(10, 17))
    assert drawn[:7] != drawn[7:]


def test_a_batch_holds_the_examples_as_the_decoder_needs_them() -> None:
    batch = next(plan(Stream([TranslationExample([4, 5, 6], [7, 8])], seed=1), round_examples=1).batches(0))
    assert batch.source_ids.tolist() == [[4, 5, 6]]
    assert batch.source_lengths.tolist() == [3]
    assert batch.input_ids.tolist() == [[CONFIG.bos_id, 7, 8]]
    assert batch.labels.tolist() == [[7, 8, CONFIG.eos_id]]


def test_padded_batches_keep_the_budget() -> None:
    for batch in islice(plan(Stream(examples(50), seed=3)).batches(0), 40):
        width = max(batch.source_ids.shape[1], batch.labels.shape[1])
        assert width * len(batch.labels) <= 64
    assert [len(group) for group in cut([TranslationExample([4] * 9, [5])] * 3, 8, TRANSLATION.length)] == [1, 1, 1]


def test_examples_of_like_length_stand_together() -> None:
    batches = list(islice(plan(Stream(examples(400), seed=3), round_examples=400).batches(0), 30))
    real = sum(int(batch.source_lengths.sum()) for batch in batches)
    assert real > 0.8 * sum(batch.source_ids.numel() for batch in batches)


def test_the_order_follows_from_the_seed() -> None:
    def run(seed: int) -> list[TranslationBatch]:
        return list(islice(plan(Stream(examples(50), seed=seed), seed=seed).batches(0), 20))

    assert same(run(1), run(1))
    assert seen(run(1)) != seen(run(2))


@pytest.mark.parametrize("stop", [1, 5, 8, 9, 13, 20])
def test_a_restored_plan_goes_on_as_if_never_stopped(stop: int) -> None:
    def fresh() -> BatchPlan:
        return plan(Stream(examples(20), seed=3), Stream(examples(30, 500), seed=4, weight=0.5, from_step=6))

    whole = list(islice(fresh().batches(0), 30))
    first = fresh()
    head = list(islice(first.batches(0), stop))
    second = fresh()
    second.restore(first.state())
    tail = list(islice(second.batches(stop), 30 - stop))
    assert same(head + tail, whole)


def test_a_stream_joins_in_the_first_round_at_or_after_its_step() -> None:
    late = plan(Stream(examples(32), seed=3), Stream(examples(32, 500), seed=4, from_step=7))
    batches = late.batches(0)
    joined = None
    for step in range(30):
        batch = next(batches)
        if joined is None and max(seen([batch])) >= 500:
            joined = step
            assert late.round_step >= 7
    assert joined is not None
    assert joined >= 7


def test_weights_set_how_often_examples_are_drawn() -> None:
    heavy, light = Stream(examples(100), seed=3, weight=3.0), Stream(examples(100, 500), seed=4)
    ids = seen(list(islice(plan(heavy, light, round_examples=400).batches(0), 200)))
    counts = Counter(token_id >= 500 for token_id in ids)
    assert counts[False] / counts[True] == pytest.approx(3.0, rel=0.1)


def test_a_tiny_file_is_not_rounded_away() -> None:
    ids = seen(list(islice(plan(Stream(examples(500), seed=3), Stream(examples(1, 900), seed=4)).batches(0), 20)))
    assert 900 in ids


def test_split_cuts_by_rows_and_loses_nothing() -> None:
    batch = TranslationBatch(
        pad(random_rows([5] * 10), 0),
        torch.full((10,), 5),
        pad(random_rows([6] * 10), 0),
        pad([[7] * 6] * 10, 0),
        torch.zeros(10, 0, 0),
    )
    parts = split(batch, 18)
    assert len(parts) == 4
    assert all(part.labels.numel() <= 18 for part in parts)
    for column in range(4):
        assert torch.equal(torch.cat([part[column] for part in parts]), batch[column])
    assert split(batch, 0) == [batch]
    assert split(batch, 60) == [batch]
    assert len(split(batch, 1)) == 10
