"""The table under random use, every answer compared with the model's own opinion of the same text."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from export.bundle import Bundle, BundleError, load_bundle
from model.reference import next_log_probs
from model.transformer import Transformer
from service.engine.decode.backend import Advanced
from service.runtime.decoder import OnnxDecoderBackend
from service.runtime.memory import HostMemory, Memory
from service.runtime.step_graphs import Run
from service.runtime.table import OnnxSavedRow, OnnxTable
from tests.service.runtime.blocks import HostCudaMemory

MAX_ROWS = 12
TOLERANCES = {"fp32": 1e-4, "fp16": 0.1}


class Walk:
    """Texts that come, are read in pieces, grow, are kept and leave, and what each row of the table has read."""

    def __init__(
        self, backend: OnnxDecoderBackend, model: Transformer, chance: random.Random, tolerance: float = 1e-4
    ) -> None:
        self.table = backend.new_table(MAX_ROWS)
        self.model, self.chance, self.tolerance = model, chance, tolerance
        self.rows: list[list[int]] = []
        self.saved: list[tuple[list[int], OnnxSavedRow]] = []

    def token(self) -> int:
        return self.chance.randrange(3, self.model.config.vocab_size)

    def advance(self, first: int, news: list[list[int]]) -> None:
        """Let the rows from `first` on read their new tokens, padded to the longest, and ask after the last or all."""
        longest = max(map(len, news))
        ids = np.full((len(news), longest), self.model.config.pad_id)
        for place, new in enumerate(news):
            ids[place, : len(new)] = new
        rows = self.rows[first : first + len(news)]
        positions = np.array([len(row) for row in rows])
        count, wants_logits = self.chance.choice([1, 4]), self.chance.random() < 0.5
        asks_all = self.chance.random() < 0.3
        asked = [
            (place, column)
            for place, new in enumerate(news)
            for column in range(0 if asks_all else len(new) - 1, len(new))
        ]
        reads = np.array([place * longest + column for place, column in asked])
        advanced = self.table.advance(first, ids, positions, reads, count, wants_logits)
        texts = [rows[place] + news[place][: column + 1] for place, column in asked]
        for row, new in zip(rows, news, strict=True):
            row.extend(new)
        self.compare(texts, advanced, count, wants_logits)

    def compare(self, texts: list[list[int]], advanced: Advanced, count: int, wants_logits: bool) -> None:
        place = self.chance.randrange(len(texts))
        assert len(advanced.candidates.ids) == len(texts)
        expected = np.array(next_log_probs(self.model, None, texts[place]))
        found = advanced.candidates.log_probs[place]
        np.testing.assert_allclose(found, np.sort(expected)[::-1][:count], atol=self.tolerance)
        np.testing.assert_allclose(found, expected[advanced.candidates.ids[place]], atol=self.tolerance)
        assert (advanced.logits is not None) == wants_logits
        if advanced.logits is not None:
            logits = advanced.logits[place]
            np.testing.assert_allclose(logits - np.logaddexp.reduce(logits), expected, atol=self.tolerance)

    def join(self, longest: int) -> None:
        """Newcomers, some with what a live or a kept row has already read."""
        count = self.chance.randint(1, MAX_ROWS - len(self.rows))
        first = len(self.rows)
        for index in range(first, first + count):
            choice = self.chance.random()
            begun: list[int] = []
            if choice < 0.3 and first:
                source = self.chance.randrange(first)
                length = self.chance.randint(1, len(self.rows[source]))
                self.table.take_row(self.table, source, index, length)
                begun = self.rows[source][:length]
            elif choice < 0.5 and self.saved:
                tokens, saved = self.chance.choice(self.saved)
                length = self.chance.randint(1, len(tokens))
                self.table.load_row(index, saved, length)
                begun = tokens[:length]
            self.rows.append(list(begun))
        for _ in range(self.chance.choice([1, 1, 3])):  # pieces
            room = 90 - max(len(row) for row in self.rows[first:])
            if room > 0:
                sizes = [self.chance.randint(1, min(longest, room)) for _ in range(count)]
                self.advance(first, [[self.token() for _ in range(size)] for size in sizes])

    def leave(self) -> None:
        index, last = self.chance.randrange(len(self.rows)), len(self.rows) - 1
        if self.chance.random() < 0.5:
            length = self.chance.randint(1, len(self.rows[index]))
            self.saved.append((self.rows[index][:length], self.table.save_row(index, length)))
        if index != last:
            self.table.take_row(self.table, last, index, len(self.rows[last]))
            self.rows[index] = self.rows[last]
        del self.rows[last]
        self.table.trim(len(self.rows), max(map(len, self.rows), default=0))


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("memory", [HostMemory(), HostCudaMemory()], ids=["host", "cuda"])
def test_rows_read_their_own_text_whatever_comes_and_goes(
    decoder_bundle: Bundle, group_query_bundle: Bundle, decoder: Transformer, memory: Memory, precision: str
) -> None:
    """In fp16 with GroupQueryAttention, whose caches lie head by head and which reads the prompt of one row alone."""
    chance = random.Random(4)
    bundle = decoder_bundle if precision == "fp32" else group_query_bundle
    backend = OnnxDecoderBackend(bundle, precision, memory=memory)
    walk = Walk(backend, decoder, chance, TOLERANCES[precision])
    capacities = set()
    for _ in range(60):
        if len(walk.rows) < MAX_ROWS and (not walk.rows or chance.random() < 0.4):
            walk.join(longest=chance.choice([1, 6, 30]))
        for _ in range(chance.choice([1, 4])):
            walk.advance(0, [[walk.token()] for _ in walk.rows])
            assert walk.table.cache is not None
            capacities.add(walk.table.cache.shape[1:3])
        while walk.rows and (max(map(len, walk.rows)) > 80 or chance.random() < 0.4):
            walk.leave()
    assert len(capacities) > 5  # it has grown and shrunk


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_rows_that_fill_a_step_up_change_nothing(
    decoder_bundle: Bundle, group_query_bundle: Bundle, decoder: Transformer, precision: str
) -> None:
    """As on a device, also where the rows behind those of a step hold prompts that are being read."""
    chance, runs = random.Random(3), list[Run]()
    bundle = decoder_bundle if precision == "fp32" else group_query_bundle
    backend = OnnxDecoderBackend(bundle, precision, observe=runs.append)
    walk = Walk(backend, decoder, chance, TOLERANCES[precision])
    for _ in range(40):
        if len(walk.rows) < MAX_ROWS and (not walk.rows or chance.random() < 0.4):
            walk.join(longest=chance.choice([1, 6, 30]))
        for count in (len(walk.rows), chance.randint(1, len(walk.rows))):
            walk.advance(0, [[walk.token()] for _ in walk.rows[:count]])
        while walk.rows and (max(map(len, walk.rows)) > 80 or chance.random() < 0.3):
            walk.leave()
    assert {"captured", "replayed"} == set(runs)
    assert runs.count("replayed") > 10


def test_a_call_beyond_the_positions_is_refused(decoder_bundle: Bundle) -> None:
    table: OnnxTable = OnnxDecoderBackend(decoder_bundle, "fp32").new_table(4)
    ids, zero = np.full((1, 7), 5), np.zeros(1, np.int64)
    with pytest.raises(IndexError, match="position 96 is beyond the model's 96 positions"):
        table.advance(0, ids, np.array([90]), zero, 1, wants_logits=False)


def test_rows_beyond_a_block_are_refused(decoder_bundle: Bundle) -> None:
    table: OnnxTable = OnnxDecoderBackend(decoder_bundle, "fp32").new_table(4)
    ids, zeros = np.full((3, 1), 5), np.zeros(3, np.int64)
    with pytest.raises(IndexError, match="rows 2 to 4 do not fit a block of 4"):
        table.advance(2, ids, zeros, zeros, 1, wants_logits=False)


def test_other_architectures_are_refused(embedding_bundle: Bundle) -> None:
    with pytest.raises(BundleError, match="is of the architecture 'encoder' and has no decoder"):
        OnnxDecoderBackend(embedding_bundle, "fp32")


def test_what_the_backend_says_of_its_model(decoder_bundle: Bundle) -> None:
    backend = OnnxDecoderBackend(decoder_bundle, "fp32")
    config = decoder_bundle.config
    assert (backend.eos_ids, backend.pad_id, backend.vocab_size) == ((config.eos_id,), config.pad_id, 300)
    assert (backend.max_total_tokens, backend.num_candidates) == (96, 16)


def test_all_the_end_tokens_of_the_manifest_end_a_text(decoder_bundle: Bundle, tmp_path: Path) -> None:
    folder = shutil.copytree(decoder_bundle.path, tmp_path / "ends")
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    manifest["heads"]["generate"]["eos_token_ids"] = [7, 2, 11]
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    assert OnnxDecoderBackend(load_bundle(folder), "fp32").eos_ids == (7, 2, 11)


def test_the_models_texts_are_worth_decoding(decoder: Transformer) -> None:
    """A model that ends at once, or repeats one token, would prove nothing in the tests of this folder."""
    with torch.inference_mode():
        states = decoder(torch.randint(3, 300, (64, 12), generator=torch.Generator().manual_seed(0)))
        best = decoder.project(states).argmax(-1)
    assert 0 < (best == decoder.config.eos_id).float().mean() < 0.2
    assert len(best.unique()) > 30
