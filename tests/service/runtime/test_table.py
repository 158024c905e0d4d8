"""The table under random use, every candidate compared with the model's own opinion of the same text."""

from __future__ import annotations

import random

import numpy as np
import pytest

from export.bundle import Bundle
from model.reference import next_log_probs
from model.transformer import Transformer
from service.engine.core.arrays import Candidates
from service.runtime.call import Shape
from service.runtime.decoder import DecoderGraphs, OnnxDecoderBackend
from service.runtime.growth import bucket
from service.runtime.memory import HostMemory, Memory
from service.runtime.step_graphs import Run
from service.runtime.table import OnnxTable, source_bucket
from tests.service.runtime.blocks import HostCudaMemory

MAX_ROWS = 12


class Walk:
    """Texts that come, grow and leave in a table, and what each of its rows has read."""

    def __init__(self, backend: OnnxDecoderBackend, model: Transformer, beam_size: int, chance: random.Random) -> None:
        self.table = backend.new_table(MAX_ROWS, beam_size)
        self.model, self.beam_size, self.chance = model, beam_size, chance
        self.sources: list[list[int]] = []
        self.prefixes: list[list[list[int]]] = []  # of each slot, of each of its rows

    @property
    def has_room(self) -> bool:
        return (len(self.sources) + 1) * self.beam_size <= MAX_ROWS

    def token(self) -> int:
        return self.chance.randrange(3, self.model.config.vocab_size)

    def join(self, longest: int, count: int = 0) -> None:
        free = MAX_ROWS // self.beam_size - len(self.sources)
        lengths = [self.chance.randint(1, longest) for _ in range(count or self.chance.randint(1, free))]
        sources = [[self.token() for _ in range(length)] for length in lengths]
        ids = np.zeros((len(sources), max(lengths)), np.int64)
        for row, source in zip(ids, sources, strict=True):
            row[: len(source)] = source
        first = len(self.sources)
        self.table.encode(ids, np.array(lengths), list(range(first, first + len(sources))))
        self.sources += sources
        self.prefixes += [[[] for _ in range(self.beam_size)] for _ in sources]

    def leave(self, slot: int) -> None:
        last = len(self.sources) - 1
        if slot != last:
            self.table.take_slot(self.table, last, slot, len(self.prefixes[last][0]))
            self.sources[slot], self.prefixes[slot] = self.sources[last], self.prefixes[last]
        del self.sources[last], self.prefixes[last]
        self.trim()

    def trim(self) -> None:
        longest = max((len(rows[0]) for rows in self.prefixes), default=0)
        self.table.trim(len(self.prefixes) * self.beam_size, longest + 1)

    def move_to(self, other: Walk, slot: int) -> None:
        other.table.take_slot(self.table, slot, len(other.sources), len(self.prefixes[slot][0]))
        other.sources.append(self.sources[slot])
        other.prefixes.append(self.prefixes[slot])
        self.leave(slot)

    def step(self) -> None:
        config = self.model.config
        rows = [row for slot in self.prefixes for row in slot]
        positions = [len(row) for row in rows]
        for row in rows:
            row.append(self.token() if row else config.bos_id)
        candidates = self.advance([row[-1] for row in rows], positions)
        self.compare(candidates)
        self.swap_beams()

    def advance(self, tokens: list[int], positions: list[int]) -> Candidates:
        count = 1 if self.beam_size == 1 else 2 * self.beam_size
        reads = np.arange(len(tokens))
        ids, indices = np.array(tokens)[:, None], np.array(positions)
        return self.table.advance(0, ids, indices, reads, count, wants_logits=False).candidates

    def compare(self, candidates: Candidates) -> None:
        """One row of each step, and the best of its candidates."""
        row = self.chance.randrange(len(candidates.ids))
        slot, beam = divmod(row, self.beam_size)
        expected = np.array(next_log_probs(self.model, self.sources[slot], self.prefixes[slot][beam]))
        found = candidates.log_probs[row]
        np.testing.assert_allclose(found, np.sort(expected)[::-1][: len(found)], atol=1e-4)
        np.testing.assert_allclose(found, expected[candidates.ids[row]], atol=1e-4)

    def swap_beams(self) -> None:
        for slot, rows in enumerate(self.prefixes):
            if self.beam_size > 1 and self.chance.random() < 0.5:
                source, destination = self.chance.sample(range(self.beam_size), 2)
                first = slot * self.beam_size
                self.table.copy_rows([(first + source, first + destination)], len(rows[0]))
                rows[destination] = list(rows[source])


@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize("memory", [HostMemory(), HostCudaMemory()], ids=["host", "cuda"])
def test_rows_read_their_own_text_whatever_comes_and_goes(
    bundle: Bundle, model: Transformer, memory: Memory, beam_size: int
) -> None:
    chance = random.Random(beam_size)
    backend = OnnxDecoderBackend(bundle, "fp32", memory=memory)
    walks = [Walk(backend, model, beam_size, chance) for _ in range(2)]
    capacities = set()
    for number in range(120):
        walk, other = walks if number % 3 else walks[::-1]
        if walk.has_room and (not walk.sources or chance.random() < 0.3):
            walk.join(longest=chance.choice([5, 5, 90]))
        if walk.sources and chance.random() < 0.15:
            walk.leave(chance.randrange(len(walk.sources)))
        if walk.sources and other.has_room and chance.random() < 0.1:
            walk.move_to(other, chance.randrange(len(walk.sources)))
        for slot in reversed(range(len(walk.sources))):
            if len(walk.prefixes[slot][0]) >= 60:
                walk.leave(slot)
        for _ in range(chance.choice([1, 1, 9])):
            if walk.sources:
                walk.step()
                assert walk.table.cache is not None
                assert walk.table.cross is not None
                capacities.add((walk.table.cache.shape[1:3], walk.table.cross.shape[1:3]))
    assert len(capacities) > 10  # it has grown and shrunk


@pytest.mark.parametrize("beam_size", [1, 3])
def test_rows_that_fill_a_step_up_change_nothing(bundle: Bundle, model: Transformer, beam_size: int) -> None:
    """As on a device; the processor ignores that a step is to be recorded."""
    chance, runs = random.Random(beam_size), list[Run]()
    walk = Walk(OnnxDecoderBackend(bundle, "fp32", observe=runs.append), model, beam_size, chance)
    for _ in range(25):
        if walk.has_room and (not walk.sources or chance.random() < 0.3):
            walk.join(longest=20)
        if chance.random() < 0.2:
            walk.leave(chance.randrange(len(walk.sources)))
        if walk.sources:
            walk.step()
    assert runs.count("replayed") > runs.count("captured") > 2
    assert "ordinary" not in runs


@pytest.mark.parametrize("is_recorded", [False, True])
def test_steps_that_nobody_looks_at_choose_what_single_ones_do(bundle: Bundle, *, is_recorded: bool) -> None:
    """Recorded as on a device; the processor ignores it. Rows leave and the table grows on the way."""
    runs = list[Run]()
    single = OnnxDecoderBackend(bundle, "fp32").new_table(MAX_ROWS)
    together = OnnxDecoderBackend(bundle, "fp32", observe=runs.append if is_recorded else None).new_table(MAX_ROWS)
    sources = np.random.default_rng(0).integers(3, 200, (5, 7))
    for table in (single, together):
        table.encode(sources, np.array([7, 3, 7, 5, 1]), range(5))
    ids, positions = np.full((5, 1), bundle.config.bos_id), np.zeros(5, np.int64)
    for num_steps, num_rows in ((4, 5), (1, 5), (4, 3), (7, 3), (3, 2)):
        ids, positions = ids[:num_rows], positions[:num_rows]
        found = together.advance_greedily(ids, positions, num_steps, ())
        assert len(found) == num_steps
        for chosen in found:
            alone = single.advance(0, ids, positions, np.arange(num_rows), 1, wants_logits=False).candidates
            assert chosen.ids.tolist() == alone.ids.tolist()
            np.testing.assert_allclose(chosen.log_probs, alone.log_probs, atol=1e-5)
            ids, positions = alone.ids.copy(), positions + 1
    assert len(set(ids.ravel().tolist())) > 1
    assert bool(runs) == is_recorded
    assert "ordinary" not in runs


@pytest.mark.parametrize("is_recorded", [False, True])
def test_steps_stop_at_an_end_where_it_is_seen_at_no_cost(bundle: Bundle, *, is_recorded: bool) -> None:
    observe = (lambda _: None) if is_recorded else None
    ids, zeros = np.full((5, 1), bundle.config.bos_id), np.zeros(5, np.int64)
    sources = np.random.default_rng(0).integers(3, 200, (5, 7))

    def steps(end_ids: set[int]) -> list[list[int]]:
        table = OnnxDecoderBackend(bundle, "fp32", observe=observe).new_table(MAX_ROWS)
        table.encode(sources, np.full(5, 7), range(5))
        return [chosen.ids[:, 0].tolist() for chosen in table.advance_greedily(ids, zeros, 6, end_ids)]

    whole = steps(set())
    last, end = next((place, new) for place in (1, 2, 3) for new in set(whole[place]) - {*np.ravel(whole[:place])})
    assert steps({end}) == (whole if is_recorded else whole[: last + 1])


def test_steps_beyond_the_positions_are_refused(bundle: Bundle) -> None:
    table = OnnxDecoderBackend(bundle, "fp32").new_table(4)
    table.encode(np.full((1, 2), 3), np.full(1, 2), range(1))
    with pytest.raises(IndexError, match="position 97 is beyond the model's 96 positions"):
        table.advance_greedily(np.full((1, 1), 5), np.array([94]), 4, ())


def test_the_table_for_long_rows_is_cut_when_they_have_left(bundle: Bundle, model: Transformer) -> None:
    walk = Walk(OnnxDecoderBackend(bundle, "fp32"), model, 1, random.Random(0))
    walk.join(longest=90, count=2)
    for _ in range(70):
        walk.step()
    table = walk.table
    assert table.cache is not None
    assert table.cross is not None
    assert table.cache.shape[1] < MAX_ROWS
    assert table.cache.shape[2] >= 70
    walk.sources, walk.prefixes = [], []
    walk.trim()
    walk.join(longest=4, count=MAX_ROWS)  # more rows than there were, and each of them short
    walk.trim()  # as the engine does when the rows have changed
    for _ in range(12):
        walk.step()
    assert table.cache.shape[1:3] == (MAX_ROWS, 16)
    assert table.cross.shape[1:3] == (MAX_ROWS, 4)


def test_more_rows_may_come_than_there_were_when_the_table_is_cut(bundle: Bundle, model: Transformer) -> None:
    walk = Walk(OnnxDecoderBackend(bundle, "fp32"), model, 1, random.Random(0))
    walk.join(longest=90)
    for _ in range(70):
        walk.step()
    few = len(walk.sources)
    walk.sources, walk.prefixes = [], []
    walk.trim()
    while len(walk.sources) < MAX_ROWS:
        walk.join(longest=4)
    assert few < len(walk.sources)
    walk.step()


def test_rows_beyond_a_block_are_refused(bundle: Bundle) -> None:
    graphs = DecoderGraphs(bundle, "fp32", "cpu", 1)
    blocks = [graphs.memory.allocate((2 * graphs.num_layers, 8, 8, graphs.width), graphs.dtype) for _ in range(2)]
    with pytest.raises(IndexError, match="rows 0 to 8 do not fit a block of 8"):
        graphs.bind_rows(graphs.decoder.io_binding(), Shape(0, 9, 1, 9, 1, False, blocks[0], 8, blocks[1]))


def test_buckets() -> None:
    for find in (bucket, source_bucket):
        capacities = [find(length, 700) for length in range(1, 701)]
        assert all(capacity >= length for length, capacity in enumerate(capacities, start=1))
        assert capacities == sorted(capacities)
        assert max(capacities) == 700
        assert len(set(capacities)) < 40


def test_rows_are_bounded(bundle: Bundle) -> None:
    table: OnnxTable = OnnxDecoderBackend(bundle, "fp32").new_table(10, 2)
    table.encode(np.full((5, 2), 3), np.full(5, 2), range(5))
    ids, zeros = np.full((10, 1), 1), np.zeros(10, np.int64)
    table.advance(0, ids, zeros, np.arange(10), 4, wants_logits=False)
    assert table.cache is not None
    assert table.cross is not None
    assert (table.cache.shape[1], table.cross.shape[1]) == (10, 8)
