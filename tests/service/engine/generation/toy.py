"""A language model that can be asked for its next token only through its cache, and what it must lead to.

Its logits follow from every token in a row's own cache, so a row that was mixed up with another, copied wrongly, cut or
left stale gives other tokens than the reference.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from service.engine.backend import Candidates, Floats, Ids
from service.engine.generation.backend import Advanced, GenerationTable, SavedRow
from service.engine.generation.types import GenerationRequest, PromptToken, TokenEvent
from service.engine.sampling.chooser import TokenChooser
from service.engine.types import Hypothesis
from tests.service.engine.toy import ToyBackend

PAD, EOS = 0, 2
VOCABULARY = 24
NUM_CANDIDATES = 8
MAX_TOKENS = 64
_GARBAGE = -1


@functools.lru_cache(maxsize=200_000)
def logits_of(prefix: tuple[int, ...]) -> Floats:
    """Drawn afresh for each prefix."""
    logits = np.random.default_rng(zlib.crc32(repr(prefix).encode())).normal(scale=2.0, size=VOCABULARY)
    return np.asarray(logits, np.float32)


@functools.lru_cache(maxsize=200_000)
def log_probs_of(prefix: tuple[int, ...]) -> Floats:
    logits = logits_of(prefix).astype(np.float64)
    return np.asarray(logits - np.log(np.exp(logits).sum()), np.float32)


def ranked(prefix: tuple[int, ...]) -> tuple[Ids, Floats]:
    scores = log_probs_of(prefix)
    ids = np.argsort(-scores, kind="stable")
    return ids, scores[ids]


def events_of(request: GenerationRequest) -> list[TokenEvent]:
    """What the stream of a request must bring: one sequence alone, without a cache."""
    chooser = TokenChooser(request.sampling, request.input_ids, request.top_n_tokens)
    tokens, events = request.input_ids, list[TokenEvent]()
    while len(events) < request.max_new_tokens:
        ids, scores = ranked(tokens)
        choice = (
            chooser.choose(logits_of(tokens)) if chooser.needs_logits else chooser.take(ids.tolist(), scores.tolist())
        )
        tokens = (*tokens, choice.token_id)
        is_end = choice.token_id == EOS and not request.ignore_eos
        reason = "eos_token" if is_end else "length" if len(events) + 1 == request.max_new_tokens else None
        events.append(TokenEvent(*choice, reason))  # type: ignore[arg-type]
        if is_end:
            break
    return events


def prompt_log_probs_of(request: GenerationRequest) -> list[PromptToken]:
    prompt, scored = request.input_ids, [PromptToken(request.input_ids[0], None, ())]
    for place in range(1, len(prompt)):
        ids, scores = ranked(prompt[:place])
        count = request.top_n_tokens
        top = tuple(zip(ids[:count].tolist(), scores[:count].tolist(), strict=True))
        scored.append(PromptToken(prompt[place], float(log_probs_of(prompt[:place])[prompt[place]]), top))
    return scored


def hypotheses_of(request: GenerationRequest) -> list[Hypothesis]:
    """Beam search as `model/reference.py` has it: no cache, no batch, every continuation ranked."""
    beam_size, live, finished = request.beam_size, [(0.0, request.input_ids)], list[Hypothesis]()
    for step in range(1, request.max_new_tokens + 1):
        continuations = [
            (score + float(log_prob), (*tokens, token))
            for score, tokens in live
            for token, log_prob in enumerate(log_probs_of(tokens))
        ]
        continuations.sort(key=lambda item: -item[0])
        live = []
        for rank, (score, tokens) in enumerate(continuations[: 2 * beam_size]):
            if tokens[-1] == EOS:
                if rank < beam_size:
                    output = tokens[len(request.input_ids) : -1]
                    finished.append(Hypothesis(output, score / step**request.length_penalty, True))
            elif len(live) < beam_size:
                live.append((score, tokens))
        if len(finished) >= beam_size:
            break
    else:
        length = request.max_new_tokens**request.length_penalty
        finished += [Hypothesis(tokens[len(request.input_ids) :], score / length, False) for score, tokens in live]
    finished.sort(key=lambda hypothesis: -hypothesis.score)
    return finished[: request.num_hypotheses]


class ToySavedRow(NamedTuple):
    tokens: Ids
    length: int


class ToyTable:
    """Rows of cached tokens, with whatever earlier ones left behind."""

    def __init__(self, backend: ToyDecoder, max_rows: int) -> None:
        self.backend = backend
        self.cache = np.full((max_rows, MAX_TOKENS), _GARBAGE)

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
        self.backend.calls.append((num_rows, num_new))
        if num_new == 1:
            self.backend.gate.before_step(num_rows)
        assert write_indices.max() + num_new <= MAX_TOKENS
        for place, (ids, index) in enumerate(zip(input_ids, write_indices, strict=True)):
            self.cache[first_row + place, index : index + num_new] = ids
        prefixes = []
        for place, column in zip(*np.divmod(read_indices, num_new), strict=True):
            prefix = self.cache[first_row + place, : write_indices[place] + column + 1]
            assert (prefix != _GARBAGE).all()
            prefixes.append(tuple(map(int, prefix)))
        rankings = [ranked(prefix) for prefix in prefixes]
        candidates = Candidates(
            np.stack([ids[:num_candidates] for ids, _ in rankings]),
            np.stack([scores[:num_candidates] for _, scores in rankings]),
        )
        logits = np.stack([self.backend.logits(prefix) for prefix in prefixes]) if wants_logits else None
        return Advanced(candidates, logits)

    def reserve(self, num_rows: int, length: int) -> None:
        assert num_rows <= len(self.cache)
        assert length <= MAX_TOKENS

    def take_row(self, other: GenerationTable, source: int, destination: int, length: int) -> None:
        assert isinstance(other, ToyTable)
        self._fill(destination, other.cache[source, :length].copy())

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

    def release(self) -> None:
        self.cache = self.cache[:0]  # whoever uses it all the same gets an IndexError

    def _fill(self, row: int, tokens: Ids) -> None:
        assert len(tokens)
        self.cache[row] = _GARBAGE
        self.cache[row, : len(tokens)] = tokens


class ToyDecoder:
    """A gate holds its steps, `calls` lists the rows and new tokens of each call, and `logits` may be replaced."""

    eos_ids: tuple[int, ...] = (EOS,)
    pad_id = PAD
    vocab_size = VOCABULARY
    num_candidates = NUM_CANDIDATES
    max_total_tokens = MAX_TOKENS

    def __init__(self, on_step: Callable[[int], None] = lambda _: None) -> None:
        self.gate = ToyBackend(on_step)
        self.calls: list[tuple[int, int]] = []
        self.logits: Callable[[tuple[int, ...]], Floats] = logits_of

    def new_table(self, max_rows: int) -> ToyTable:
        return ToyTable(self, max_rows)

    @property
    def reads(self) -> list[tuple[int, int]]:
        """The calls that read prompts."""
        return [call for call in self.calls if call[1] > 1]


def prompt_that_lasts(num_tokens: int, first: Sequence[int] = (5,)) -> tuple[int, ...]:
    """A prompt whose greedy output has at least so many tokens."""
    for last in range(3, VOCABULARY):
        request = GenerationRequest(input_ids=(*first, last), max_new_tokens=num_tokens)
        if events_of(request)[-1].finish_reason == "length":
            return request.input_ids
    raise AssertionError("the toy model ends too soon")
