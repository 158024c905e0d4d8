from __future__ import annotations

import time
from concurrent.futures import Future

from hypothesis import given
from hypothesis import strategies as st

from service.engine.batch import Batch
from service.engine.loop import cut_batches
from service.engine.sequence import Sequence
from service.engine.types import DecodingOptions, InferenceRequest
from service.engine.waiting import Ticket
from tests.service.engine.toy import BOS, EOS, ToyBackend, ToyTable


def sequence_of(num_tokens: int, beam_size: int = 1) -> Sequence:
    request = InferenceRequest((5,) * num_tokens, DecodingOptions(beam_size))
    return Sequence(Ticket(request, Future(), time.monotonic()), BOS, EOS)


@given(st.lists(st.integers(1, 20), max_size=30).map(sorted), st.integers(20, 80))
def test_encoder_batches(lengths: list[int], max_tokens: int) -> None:
    sequences = [sequence_of(length) for length in lengths]
    groups = cut_batches(sequences, max_tokens)
    assert [sequence for group in groups for sequence in group] == sequences
    sizes = [(len(group), group[-1].num_source_tokens) for group in groups]
    assert all(count * longest <= max_tokens for count, longest in sizes)
    for (count, _), following in zip(sizes, groups[1:], strict=False):
        assert (count + 1) * following[0].num_source_tokens > max_tokens  # the next one had no room


@given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=12))
def test_rows_are_closed_up_when_sequences_leave(plan: list[tuple[int, bool]]) -> None:
    table = ToyTable(ToyBackend(), 48)
    batch = Batch(table, 48, 64)
    for number, (beam_size, _) in enumerate(plan):
        sequence = sequence_of(1, beam_size)
        sequence.rows = batch.reserve(sequence, beam_size)
        sequence.position = 3
        for row in sequence.rows:
            table.sources[row] = (number,)
            table.cache[row, :3] = number
    numbered = list(enumerate(batch.sequences))
    batch.remove([sequence for number, sequence in numbered if plan[number][1]])
    batch.compact()
    staying = [(number, sequence) for number, sequence in numbered if not plan[number][1]]
    assert [sequence for _, sequence in staying] == batch.sequences
    rows = [row for sequence in batch.sequences for row in sequence.rows]
    assert sorted(rows) == list(range(batch.num_rows))
    for number, sequence in staying:
        for row in sequence.rows:
            assert table.sources[row] == (number,)
            assert (table.cache[row, :3] == number).all()


def test_newcomers_fill_gaps_first() -> None:
    batch = Batch(ToyTable(ToyBackend(), 8), 8, 64)
    first, second = sequence_of(1, 2), sequence_of(1, 2)
    assert batch.reserve(first, 2) == [0, 1]
    assert batch.reserve(second, 2) == [2, 3]
    batch.remove([first])
    assert batch.reserve(sequence_of(1, 3), 3) == [0, 1, 4]
