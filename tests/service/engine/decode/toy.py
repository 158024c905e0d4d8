"""A model that can be asked for its next token only through its cache, and what decoding with it must lead to.

Its logits follow from a row's source and from every token in its own cache, so a row that was mixed up with another,
copied wrongly, cut or left stale gives other tokens than the oracle.
"""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from model import beam_oracle
from service.engine.core.arrays import Candidates, Floats, Ids
from service.engine.decode.backend import Advanced, SavedRow, Table
from service.engine.decode.sampling.chooser import TokenChooser
from service.engine.decode.types import DecodingOptions, DecodingRequest, Hypothesis, PromptToken, TokenEvent
from tests.service.engine.gate import Gate

PAD, BOS, EOS = 0, 1, 2
VOCABULARY = 24
NUM_CANDIDATES = 8
MAX_TOKENS = 64
_GARBAGE = -1

Source = tuple[int, ...] | None


def request_of(prompt: Sequence[int], source: Source = None, **changes: Any) -> DecodingRequest:
    """A request; `changes` are fields of it or of its options."""
    names = {field.name for field in fields(DecodingOptions)}
    options = DecodingOptions(**{name: value for name, value in changes.items() if name in names})
    rest = {name: value for name, value in changes.items() if name not in names}
    return DecodingRequest(prompt_ids=tuple(prompt), source_ids=source, options=options, **rest)


@functools.lru_cache(maxsize=200_000)
def logits_of(prefix: tuple[int, ...], source: Source = None) -> Floats:
    """Drawn afresh for each source and prefix; with a source the end becomes likelier with each token."""
    logits = np.random.default_rng(zlib.crc32(repr((source, prefix)).encode())).normal(scale=2.0, size=VOCABULARY)
    if source is not None:
        logits[EOS] += 0.3 * len(prefix) - 1.0
    return np.asarray(logits, np.float32)


@functools.lru_cache(maxsize=200_000)
def log_probs_of(prefix: tuple[int, ...], source: Source = None) -> Floats:
    logits = logits_of(prefix, source).astype(np.float64)
    return np.asarray(logits - np.log(np.exp(logits).sum()), np.float32)


def ranked(prefix: tuple[int, ...], source: Source = None) -> tuple[Ids, Floats]:
    scores = log_probs_of(prefix, source)
    ids = np.argsort(-scores, kind="stable")
    return ids, scores[ids]


def banned(options: DecodingOptions, prompt: tuple[int, ...], new: tuple[int, ...]) -> set[int]:
    """Every token that may not come after `new`: tried one by one."""
    forbidden = {*options.suppressed_ids, *(options.first_suppressed_ids if not new else ())}
    for sequence in options.suppressed_sequences:
        forbidden |= {token for token in range(VOCABULARY) if (*prompt, *new, token)[-len(sequence) :] == sequence}
    if size := options.no_repeat_ngram_size:
        text = (*prompt, *new)
        grams = {text[place : place + size] for place in range(len(text) - size + 1)}
        forbidden |= {token for token in range(VOCABULARY) if (*text, token)[-size:] in grams}
    return forbidden


def events_of(request: DecodingRequest) -> list[TokenEvent]:
    """What the stream of a request must bring: one sequence alone, without a cache."""
    options = request.options
    chooser = TokenChooser(request.sampling, request.prompt_ids, request.top_n_tokens)
    tokens, events = request.prompt_ids, list[TokenEvent]()
    while len(events) < options.max_new_tokens:
        ids, scores = ranked(tokens, request.source_ids)
        logits = logits_of(tokens, request.source_ids)
        if options.is_restricted:
            logits = logits.copy()
            logits[list(banned(options, request.prompt_ids, tokens[len(request.prompt_ids) :]))] = -np.inf
        if chooser.needs_logits or options.is_restricted:
            choice = chooser.choose(logits)
        else:
            choice = chooser.take(ids.tolist(), scores.tolist())
        is_last = len(events) + 1 == options.max_new_tokens
        if options.forces_end and is_last and not request.ignore_eos:
            choice = choice._replace(token_id=EOS, log_prob=0.0, top_tokens=())
        tokens = (*tokens, choice.token_id)
        is_end = choice.token_id == EOS and not request.ignore_eos
        events.append(TokenEvent(*choice, "eos_token" if is_end else "length" if is_last else None))
        if is_end:
            break
    return events


def prompt_log_probs_of(request: DecodingRequest) -> list[PromptToken]:
    prompt, scored = request.prompt_ids, [PromptToken(request.prompt_ids[0], None, ())]
    for place in range(1, len(prompt)):
        ids, scores = ranked(prompt[:place], request.source_ids)
        count = request.top_n_tokens
        top = tuple(zip(ids[:count].tolist(), scores[:count].tolist(), strict=True))
        token = prompt[place]
        scored.append(PromptToken(token, float(log_probs_of(prompt[:place], request.source_ids)[token]), top))
    return scored


def hypotheses_of(request: DecodingRequest) -> list[Hypothesis]:
    """Beam search as `model/beam_oracle.py` has it: no cache, no batch, every continuation ranked."""
    options, prompt, source = request.options, request.prompt_ids, request.source_ids

    def next_log_probs(new: list[int]) -> list[float]:
        log_probs: list[float] = log_probs_of((*prompt, *new), source).tolist()
        for token in banned(options, prompt, tuple(new)):
            log_probs[token] = -math.inf
        return log_probs

    found = beam_oracle.search(
        next_log_probs,
        () if request.ignore_eos else (EOS,),
        options.beam_size,
        options.max_new_tokens,
        length_penalty=options.length_penalty,
        num_hypotheses=options.num_hypotheses,
        early_stopping=options.early_stopping,
        forced_end_id=EOS if options.forces_end and not request.ignore_eos else None,
        num_forced_tokens=options.num_forced_tokens,
    )
    return [Hypothesis(tuple(best.token_ids), best.score, best.finished) for best in found]


class ToySavedRow(NamedTuple):
    tokens: Ids
    length: int


class ToyTable:
    """Slots with sources and rows of cached tokens, with whatever earlier ones left behind."""

    def __init__(self, backend: ToyBackend, max_rows: int, beam_size: int) -> None:
        self.backend, self.beam_size = backend, beam_size
        self.sources: list[Source] = [None] * (max_rows // beam_size)
        self.cache = np.full((max_rows, MAX_TOKENS), _GARBAGE)

    def encode(self, input_ids: Ids, lengths: Ids, slots: Sequence[int]) -> None:
        assert input_ids.shape[1] == lengths.max()
        self.backend.encoded.append(input_ids.shape)
        for ids, length, slot in zip(input_ids, lengths, slots, strict=True):
            assert (ids[length:] == PAD).all()
            self.sources[slot] = tuple(map(int, ids[:length]))

    def advance(
        self,
        first_row: int,
        input_ids: Ids,
        write_indices: Ids,
        read_indices: Ids,
        num_candidates: int,
        wants_logits: bool,
    ) -> Advanced:
        num_rows, num_new = input_ids.shape
        assert num_rows % self.beam_size == first_row % self.beam_size == 0
        assert num_candidates <= self.backend.num_candidates
        self.backend.calls.append((num_rows, num_new))
        if num_new == 1:
            self.backend.begin_step()
        assert write_indices.max() + num_new <= MAX_TOKENS
        for place, (ids, index) in enumerate(zip(input_ids, write_indices, strict=True)):
            self.cache[first_row + place, index : index + num_new] = ids
        texts = []
        for place, column in zip(*np.divmod(read_indices, num_new), strict=True):
            prefix = self.cache[first_row + place, : write_indices[place] + column + 1]
            assert (prefix != _GARBAGE).all()
            source = self.sources[(first_row + place) // self.beam_size]
            assert (source is not None) == bool(self.backend.max_source_tokens)
            texts.append((tuple(map(int, prefix)), source))
        rankings = [ranked(prefix, source) for prefix, source in texts]
        candidates = Candidates(
            np.stack([ids[:num_candidates] for ids, _ in rankings]),
            np.stack([scores[:num_candidates] for _, scores in rankings]),
        )
        return Advanced(candidates, np.stack([self.backend.logits(*text) for text in texts]) if wants_logits else None)

    def advance_greedily(
        self, input_ids: Ids, write_indices: Ids, num_steps: int, end_ids: Collection[int]
    ) -> Sequence[Candidates]:
        """Runs on behind the ends every other time, as a device does."""
        steps = list[Candidates]()
        self.backend.num_greedy_calls += 1
        rows = np.arange(len(input_ids))
        while len(steps) < num_steps:
            steps.append(self.advance(0, input_ids, write_indices, rows, 1, wants_logits=False).candidates)
            input_ids, write_indices = steps[-1].ids, write_indices + 1
            if self.backend.num_greedy_calls % 2 and not set(end_ids).isdisjoint(input_ids[:, 0].tolist()):
                break
        return steps

    def reserve(self, num_rows: int, length: int) -> None:
        assert num_rows <= len(self.cache)
        assert length <= MAX_TOKENS

    def copy_rows(self, copies: Sequence[tuple[int, int]], length: int) -> None:
        for source, destination in copies:
            assert source // self.beam_size == destination // self.beam_size
            self._fill(destination, self.cache[source, :length].copy())

    def take_row(self, other: Table, source: int, destination: int, length: int) -> None:
        assert isinstance(other, ToyTable)
        self._fill(destination, other.cache[source, :length].copy())

    def take_slot(self, other: Table, source: int, destination: int, length: int) -> None:
        assert isinstance(other, ToyTable)
        assert other.beam_size in (1, self.beam_size)
        self.sources[destination] = other.sources[source]
        for beam in range(self.beam_size):
            row = source * other.beam_size + (beam if other.beam_size > 1 else 0)
            self._fill(destination * self.beam_size + beam, other.cache[row, :length].copy())

    def save_row(self, row: int, length: int) -> ToySavedRow:
        tokens = self.cache[row, :length].copy()
        assert (tokens != _GARBAGE).all()
        return ToySavedRow(tokens, length)

    def load_row(self, row: int, saved: SavedRow, length: int) -> None:
        assert isinstance(saved, ToySavedRow)
        assert length <= saved.length
        self._fill(row, saved.tokens[:length])

    def trim(self, num_rows: int, length: int) -> None:
        self.cache[num_rows:] = _GARBAGE
        self.cache[:, length:] = _GARBAGE
        for slot in range(num_rows // self.beam_size, len(self.sources)):
            self.sources[slot] = None

    def release(self) -> None:
        self.cache = self.cache[:0]  # whoever uses it all the same gets an IndexError

    def _fill(self, row: int, tokens: Ids) -> None:
        self.cache[row] = _GARBAGE
        self.cache[row, : len(tokens)] = tokens


class ToyBackend(Gate):
    """`calls` lists the rows and new tokens of each call, `encoded` the shapes of sources; `logits` may be replaced."""

    eos_ids: tuple[int, ...] = (EOS,)
    suppressed_ids: tuple[int, ...] = ()
    pad_id = PAD
    vocab_size = VOCABULARY
    num_candidates = NUM_CANDIDATES
    max_total_tokens = MAX_TOKENS
    bytes_per_position = 1

    def __init__(self, on_step: Callable[[int], None] = lambda _: None, max_source_tokens: int = 0) -> None:
        super().__init__(on_step)
        self.max_source_tokens = max_source_tokens
        self.bytes_per_source_token = min(1, max_source_tokens)
        self.num_greedy_calls = 0
        self.calls: list[tuple[int, int]] = []
        self.encoded: list[tuple[int, ...]] = []
        self.tables: list[ToyTable] = []
        self.logits: Callable[[tuple[int, ...], Source], Floats] = logits_of

    def new_table(self, max_rows: int, beam_size: int = 1) -> ToyTable:
        self.tables.append(ToyTable(self, max_rows, beam_size))
        return self.tables[-1]

    @property
    def rows_of_steps(self) -> list[int]:
        """The rows of each decode step."""
        return [num_rows for num_rows, num_new in self.calls if num_new == 1]

    @property
    def reads(self) -> list[tuple[int, int]]:
        """The calls that read prompts."""
        return [call for call in self.calls if call[1] > 1]


def prompt_that_lasts(num_tokens: int, first: Sequence[int] = (5,)) -> tuple[int, ...]:
    """A prompt whose greedy output has at least so many tokens."""
    for last in range(3, VOCABULARY):
        request = request_of((*first, last), max_new_tokens=num_tokens)
        if events_of(request)[-1].finish_reason == "length":
            return request.prompt_ids
    raise AssertionError("the toy model ends too soon")


def source_that_lasts(num_tokens: int, beam_size: int = 1) -> tuple[int, ...]:
    """A source whose search takes at least so many steps."""
    for number in range(2000):
        source = (3 + number % 20, 3 + number // 20 % 20)
        request = request_of((BOS,), source, beam_size=beam_size, num_hypotheses=beam_size, max_new_tokens=num_tokens)
        if not any(hypothesis.finished for hypothesis in hypotheses_of(request)):
            return source
    raise AssertionError("the toy model ends too soon")
