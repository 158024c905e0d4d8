from __future__ import annotations

import time
from concurrent.futures import Future
from itertools import pairwise

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


@given(st.lists(st.integers(1, 20), max_size=30).map(sorted), st.integers(20, 80), st.integers(1, 40))
def test_encoder_batches(lengths: list[int], max_tokens: int, overhead_tokens: int) -> None:
    sequences = [sequence_of(length) for length in lengths]
    groups = cut_batches(sequences, max_tokens, overhead_tokens)
    assert [sequence for group in groups for sequence in group] == sequences
    sizes = [(len(group), group[-1].num_source_tokens) for group in groups]
    assert all(count * longest <= max_tokens for count, longest in sizes)
    for group in groups:
        for count, (before, after) in enumerate(pairwise(sequence.num_source_tokens for sequence in group), 1):
            assert (after - before) * count <= overhead_tokens  # its padding costs less than a batch
    for (count, longest), following in zip(sizes, groups[1:], strict=False):
        length = following[0].num_source_tokens
        has_room = (count + 1) * length <= max_tokens
        assert not has_room or (length - longest) * count > overhead_tokens


@given(st.integers(1, 4), st.lists(st.booleans(), min_size=1, max_size=12))
def test_slots_are_closed_up_when_sequences_leave(beam_size: int, is_leaving: list[bool]) -> None:
    table = ToyTable(ToyBackend(), 48, beam_size)
    batch = Batch(table, 48, beam_size, 64)
    for number in range(len(is_leaving)):
        sequence = sequence_of(1, beam_size)
        slot = batch.add(sequence)
        sequence.position = 3
        table.sources[slot] = (number,)
        table.cache[slot * beam_size : (slot + 1) * beam_size, :3] = number
    numbered = list(enumerate(batch.sequences))
    batch.remove([sequence for number, sequence in numbered if is_leaving[number]])
    batch.compact()
    staying = [(number, sequence) for number, sequence in numbered if not is_leaving[number]]
    assert [sequence for _, sequence in staying] == batch.sequences
    assert batch.num_rows == beam_size * len(staying)
    assert sorted(sequence.first_row for _, sequence in staying) == list(range(0, batch.num_rows, beam_size))
    for number, sequence in staying:
        assert table.sources[sequence.first_row // beam_size] == (number,)
        assert (table.cache[sequence.first_row : sequence.first_row + beam_size, :3] == number).all()


def test_newcomers_fill_gaps_first() -> None:
    batch = Batch(ToyTable(ToyBackend(), 8, 2), 8, 2, 64)
    sequences = [sequence_of(1, 2) for _ in range(4)]
    assert [batch.add(sequence) for sequence in sequences[:3]] == [0, 1, 2]
    batch.remove(sequences[1:2])
    assert batch.add(sequences[3]) == 1
    assert [sequence.first_row for sequence in batch.sequences] == [0, 4, 2]
