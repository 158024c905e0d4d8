"""A prompt that has been admitted, its rows, and what becomes of it: a stream of tokens, or a search."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from typing import NamedTuple

from service.engine.backend import Floats
from service.engine.errors import NO_NUMBER, InvalidOutputError
from service.engine.generation.backend import Advanced, GenerationTable
from service.engine.generation.line import Ticket
from service.engine.generation.prefix import PrefixKey, key_of
from service.engine.generation.types import FinishReason, PromptToken, TokenEvent
from service.engine.sampling.chooser import Choice, TokenChooser
from service.engine.search import BeamSearch, assign_rows
from service.engine.types import GenerationResult, Hypothesis


class Outputs(NamedTuple):
    """What the model thinks comes after each token that was read, as plain lists, and where asked all logits (R,V)."""

    ids: list[list[int]]
    log_probs: list[list[float]]
    logits: Floats | None

    @classmethod
    def of(cls, advanced: Advanced) -> Outputs:
        """The same, taken out of numpy once for all rows."""
        return cls(advanced.candidates.ids.tolist(), advanced.candidates.log_probs.tolist(), advanced.logits)

    def last(self) -> Outputs:
        """What comes after the last token alone."""
        return Outputs(self.ids[-1:], self.log_probs[-1:], None if self.logits is None else self.logits[-1:])


class Row:
    """A row of `table`: `index` is where it lies, `beam` which one of its sequence it is."""

    __slots__ = ("beam", "index", "sequence", "table")

    def __init__(self, sequence: Sequence, beam: int, table: GenerationTable, index: int) -> None:
        self.sequence, self.beam, self.table, self.index = sequence, beam, table, index

    def take(self, other: Row, length: int) -> None:
        """Become what the first `length` positions of another row are."""
        if length:
            self.table.take_row(other.table, other.index, self.index, length)


class Sequence(ABC):
    """One admitted request. Its rows have `position` tokens in their caches."""

    def __init__(self, ticket: Ticket, prompt: PrefixKey) -> None:
        self.ticket = ticket
        self.request = ticket.request.request
        self.prompt = prompt
        self.position = 0
        self.rows: list[Row] = []
        self.admitted = time.monotonic()
        self.num_candidates = 1

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.prompt.token_ids)

    @property
    def num_first_tokens(self) -> int:
        """The positions that its prompt takes and, where any output is wanted, the first token of that."""
        return min(self.num_prompt_tokens + 1, self.request.num_total_tokens)

    @property
    def is_scored(self) -> bool:
        """Whether each token of the prompt is to be scored, so that it is read with nothing left out."""
        return self.request.wants_prompt_log_probs

    @property
    def needs_logits(self) -> bool:
        """Whether the model's best tokens are not enough for the next `accept`."""
        return False

    @property
    @abstractmethod
    def text(self) -> PrefixKey:
        """What the cache of its first row holds that can be said of it."""

    @abstractmethod
    def next_token(self, beam: int) -> int:
        """What enters the row of a beam at `position`."""

    @abstractmethod
    def accept(self, outputs: Outputs, first_row: int) -> bool:
        """Take what follows the first `position` tokens; False when finished.

        `outputs` begin with the row `first_row` of the table. Raises InvalidOutputError.
        """

    @abstractmethod
    def hypotheses(self) -> tuple[Hypothesis, ...]:
        """What was found."""

    def result(self) -> GenerationResult:
        return GenerationResult(
            hypotheses=self.hypotheses(),
            queue_seconds=self.admitted - self.ticket.submitted,
            inference_seconds=time.monotonic() - self.admitted,
            num_input_tokens=self.num_prompt_tokens,
        )


class StreamedSequence(Sequence):
    """One row, whose tokens are told one by one."""

    def __init__(self, ticket: Ticket, prompt: PrefixKey, eos_ids: frozenset[int]) -> None:
        super().__init__(ticket, prompt)
        request = self.request
        self._eos_ids = frozenset[int]() if request.ignore_eos else eos_ids
        self._chooser = TokenChooser(request.sampling, request.input_ids, request.top_n_tokens)
        self._tokens = list(request.input_ids)
        self._scores: list[PromptToken] = []
        self._score = 0.0
        self._finish_reason: FinishReason | None = None
        self.num_candidates = self._chooser.num_candidates
        self.event: TokenEvent | None = None
        """What the last `accept` came to."""

    @property
    def needs_logits(self) -> bool:
        return self._chooser.needs_logits

    @property
    def text(self) -> PrefixKey:
        return key_of(self._tokens[: self.position])

    def next_token(self, beam: int) -> int:
        return self._tokens[self.position]

    def accept(self, outputs: Outputs, first_row: int) -> bool:
        if not self.request.max_new_tokens:  # only the prompt's own tokens were asked about
            return False
        choice = self._choose(outputs, self.rows[0].index - first_row)
        self._tokens.append(choice.token_id)
        self._score += choice.log_prob
        num_new = len(self._tokens) - self.num_prompt_tokens
        if choice.token_id in self._eos_ids:
            self._finish_reason = "eos_token"
        elif num_new == self.request.max_new_tokens:
            self._finish_reason = "length"
        self.event = TokenEvent(*choice, self._finish_reason)
        return self._finish_reason is None

    def _choose(self, outputs: Outputs, place: int) -> Choice:
        if not self._chooser.needs_logits:
            return self._chooser.take(outputs.ids[place], outputs.log_probs[place])
        assert outputs.logits is not None
        return self._chooser.choose(outputs.logits[place])

    def score(self, start: int, outputs: Outputs) -> None:
        """Score those tokens of the prompt that follow the ones from `start` on, after each of which is an output.

        The model ranked its best tokens by their log-probabilities; what lies between those and the logits is the same
        for every token, so nothing is summed up over the vocabulary again. Raises InvalidOutputError.
        """
        assert outputs.logits is not None
        following = self.prompt.token_ids[start + 1 : start + 1 + len(outputs.ids)]
        count = self.request.top_n_tokens
        for token, ids, log_probs, logits in zip(
            following, outputs.ids, outputs.log_probs, outputs.logits, strict=False
        ):
            log_total = float(logits[ids[0]]) - log_probs[0]
            if not math.isfinite(log_total):
                raise InvalidOutputError(NO_NUMBER)
            top_tokens = tuple(zip(ids[:count], log_probs[:count], strict=True))
            self._scores.append(PromptToken(token, float(logits[token]) - log_total, top_tokens))

    @property
    def prompt_log_probs(self) -> tuple[PromptToken, ...] | None:
        """The scores of the prompt, where they were asked for."""
        return (PromptToken(self._tokens[0], None, ()), *self._scores) if self.is_scored else None

    def hypotheses(self) -> tuple[Hypothesis, ...]:
        ended = self._finish_reason == "eos_token"
        tokens = self._tokens[self.num_prompt_tokens : len(self._tokens) - ended]
        return (Hypothesis(tuple(tokens), self._score, ended),)


class SearchedSequence(Sequence):
    """A beam search: one row while its prompt is read, then one for each beam."""

    def __init__(self, ticket: Ticket, prompt: PrefixKey, eos_ids: frozenset[int]) -> None:
        super().__init__(ticket, prompt)
        options = self.request.decoding
        eos_ids = frozenset() if self.request.ignore_eos else eos_ids
        self._search = BeamSearch(options, eos_ids)
        self._beam_tokens: list[int] = []
        self.num_candidates = self._search.num_candidates
        self.copies: list[tuple[Row, Row]] = []
        """The rows to copy before the next step."""

    @property
    def text(self) -> PrefixKey:
        return PrefixKey.of(self.prompt.token_ids[: self.position])

    def next_token(self, beam: int) -> int:
        return self._beam_tokens[beam]

    def accept(self, outputs: Outputs, first_row: int) -> bool:
        places = [row.index - first_row for row in self.rows]
        log_probs = [outputs.log_probs[place] for place in places]
        if any(math.isnan(best[0]) for best in log_probs):
            raise InvalidOutputError(NO_NUMBER)
        step = self._search.advance([outputs.ids[place] for place in places], log_probs)
        if step is None:
            return False
        self._beam_tokens = step.tokens
        if len(self.rows) == len(step.parents):
            self._reorder(step.parents)
        return True

    def _reorder(self, parents: list[int]) -> None:
        """Give each beam the row of the one that it grew from; at first all grow from one, in one row."""
        beams, copies = assign_rows(parents)
        rows = self.rows
        self.copies = [(rows[source], rows[destination]) for source, destination in copies]
        self.rows = [rows[beam] for beam in beams]
        for beam, row in enumerate(self.rows):
            row.beam = beam

    def hypotheses(self) -> tuple[Hypothesis, ...]:
        return self._search.hypotheses


def sequence_of(ticket: Ticket, eos_ids: frozenset[int]) -> StreamedSequence | SearchedSequence:
    """What a ticket becomes when it is admitted."""
    prompt = key_of(ticket.request.request.input_ids)
    kind = SearchedSequence if ticket.request.stream is None else StreamedSequence
    return kind(ticket, prompt, eos_ids)
