"""A request that has been admitted, its place in a table, and its chooser: greedy, sampled, or a beam search."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence as Seq
from typing import TYPE_CHECKING, NamedTuple

from service.engine.core import line
from service.engine.core.arrays import Floats
from service.engine.core.errors import NO_NUMBER, InvalidOutputError
from service.engine.decode.backend import Advanced, Backend
from service.engine.decode.beam import BeamSearch, assign_rows
from service.engine.decode.prefix import UNSHARED, PrefixKey, key_of
from service.engine.decode.restrictions import Restrictions, best_without, masked, without
from service.engine.decode.sampling.chooser import Choice, TokenChooser
from service.engine.decode.types import (
    DecodingRequest,
    FinishReason,
    Hypothesis,
    PromptToken,
    Result,
    TokenEvent,
)

if TYPE_CHECKING:
    from service.engine.decode.batch import Batch

Ticket = line.Ticket[DecodingRequest, Result]


class Outputs(NamedTuple):
    """The model's output after each token read, as plain lists, and where asked all logits (R,V)."""

    ids: list[list[int]]
    log_probs: list[list[float]]
    logits: Floats | None

    @classmethod
    def of(cls, advanced: Advanced) -> Outputs:
        """The same, converted from numpy once for all rows."""
        return cls(advanced.candidates.ids.tolist(), advanced.candidates.log_probs.tolist(), advanced.logits)

    def last(self) -> Outputs:
        """The output after the last token alone."""
        return Outputs(self.ids[-1:], self.log_probs[-1:], None if self.logits is None else self.logits[-1:])


class Sequence(ABC):
    """One admitted request. Its rows of `batch`, from `first_row` on, have `position` tokens in their caches.

    Beam k has the row `rows[k]` of them, and `tokens[k]` enters it next. A prompt of several tokens is read in one row.
    """

    num_candidates = 1
    """How many of the model's best tokens `accept` needs."""
    needs_logits = False
    """Whether it needs all logits."""

    def __init__(self, ticket: Ticket) -> None:
        self.ticket = ticket
        self.request = ticket.request
        self.prompt = key_of(self.request.prompt_ids) if self.request.source_ids is None else UNSHARED
        self.batch: Batch | None = None
        self.first_row = 0
        self.position = 0
        self.num_bytes = 0  # of the cache, at its longest
        self.rows = list(range(self.request.num_rows))
        self.tokens = [self.request.prompt_ids[-1]] * len(self.rows)
        self.copies: list[tuple[int, int]] = []
        """The rows of the table to copy before the next step, as (source, destination)."""
        self.events: list[TokenEvent | None] = []
        """What the last `accept` has for the listener: a token, or None for an end without one."""
        self.admitted = time.monotonic()

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.request.prompt_ids)

    @property
    def num_first_tokens(self) -> int:
        """The positions of its prompt and, where that is read too, of the first token of output."""
        return min(self.num_prompt_tokens + 1, self.request.num_positions)

    @property
    def is_scored(self) -> bool:
        """Whether each token of the prompt is scored, so that no prefix is reused."""
        return self.request.wants_prompt_log_probs

    @property
    def text(self) -> PrefixKey:
        """The text whose keys and values are in its first row, for the prefix cache."""
        return UNSHARED if self.request.source_ids is not None else key_of(self.request.prompt_ids[: self.position])

    @property
    def num_greedy_steps(self) -> int:
        """For how many steps nobody has to look at its tokens, because each is the likeliest after the one before."""
        return 1

    @abstractmethod
    def accept(self, outputs: Outputs, first_row: int) -> bool:
        """Take the outputs after the first `position` tokens; False when finished.

        `outputs` begin with the row `first_row` of the table. Raises InvalidOutputError.
        """

    def accept_steps(self, steps: Seq[Outputs], first_row: int) -> bool:
        """`accept` one step after the other; those after its end are not looked at."""
        is_going_on = self.accept(steps[0], first_row)
        for outputs in steps[1:]:
            if not is_going_on:
                break
            self.position += 1
            is_going_on = self.accept(outputs, first_row)
        return is_going_on

    @abstractmethod
    def hypotheses(self) -> tuple[Hypothesis, ...]:
        """The outputs, best first."""

    def result(self) -> Result:
        return Result(
            hypotheses=self.hypotheses(),
            queue_seconds=self.admitted - self.ticket.submitted,
            inference_seconds=time.monotonic() - self.admitted,
            num_input_tokens=self.request.num_tokens,
        )


class GreedySequence(Sequence):
    """Greedy search without a listener: only tokens and their score are kept."""

    def __init__(self, ticket: Ticket, eos_ids: Seq[int]) -> None:
        super().__init__(ticket)
        self._eos_ids = eos_ids
        self._new: list[int] = []
        self._score = 0.0
        self._ended = False

    @property
    def num_greedy_steps(self) -> int:
        return self.request.options.max_new_tokens - len(self._new)

    def accept(self, outputs: Outputs, first_row: int) -> bool:
        place = self.first_row - first_row
        log_prob = outputs.log_probs[place][0]
        if math.isnan(log_prob):
            raise InvalidOutputError(NO_NUMBER)
        self._score += log_prob
        token = outputs.ids[place][0]
        if token in self._eos_ids:
            self._ended = True
            return False
        self._new.append(token)
        self.tokens[0] = token
        return len(self._new) < self.request.options.max_new_tokens

    @property
    def text(self) -> PrefixKey:
        if self.request.source_ids is not None:
            return UNSHARED
        return key_of([*self.request.prompt_ids, *self._new][: self.position])

    def hypotheses(self) -> tuple[Hypothesis, ...]:
        options = self.request.options
        length = len(self._new) + self._ended + options.num_forced_tokens
        return (Hypothesis(tuple(self._new), self._score / length**options.length_penalty, self._ended),)


class ChosenSequence(Sequence):
    """One row whose tokens are sampled, or chosen after penalties, or streamed to a listener."""

    def __init__(self, ticket: Ticket, eos_ids: Seq[int], suppressed_ids: Seq[int] = ()) -> None:
        super().__init__(ticket)
        request = self.request
        self._eos_ids = eos_ids
        self._suppressed = frozenset(suppressed_ids)
        self._chooser = TokenChooser(request.sampling, request.prompt_ids, request.top_n_tokens)
        options = request.options
        self._restrictions = Restrictions(options, request.prompt_ids) if options.is_restricted else None
        self._tokens = list(request.prompt_ids)
        self._scores: list[PromptToken] = []
        self._score = 0.0
        self._finish_reason: FinishReason | None = None
        self.num_candidates = self._chooser.num_candidates
        self.needs_logits = self._chooser.needs_logits or self._restrictions is not None

    @property
    def text(self) -> PrefixKey:
        return UNSHARED if self.request.source_ids is not None else key_of(self._tokens[: self.position])

    def accept(self, outputs: Outputs, first_row: int) -> bool:
        if not self.request.options.max_new_tokens:  # only the prompt is scored
            self.events.append(None)
            return False
        choice = self._choose(outputs, self.first_row - first_row)
        self._tokens.append(choice.token_id)
        self.tokens[0] = choice.token_id
        self._score += choice.log_prob
        if choice.token_id in self._eos_ids:
            self._finish_reason = "eos_token"
        elif self._num_new == self.request.options.max_new_tokens:
            self._finish_reason = "length"
        if self.request.listener is not None:
            self.events.append(TokenEvent(*choice, self._finish_reason))
        return self._finish_reason is None

    @property
    def _num_new(self) -> int:
        return len(self._tokens) - self.num_prompt_tokens

    def _choose(self, outputs: Outputs, place: int) -> Choice:
        options = self.request.options
        if options.forces_end and self._num_new == options.max_new_tokens - 1 and self._eos_ids:
            return Choice(self._eos_ids[0], 0.0, ())
        if not self.needs_logits:
            return self._chooser.take(outputs.ids[place], outputs.log_probs[place])
        assert outputs.logits is not None
        banned = self._suppressed
        if self._restrictions is not None:
            banned |= self._restrictions.banned(self._tokens[self.num_prompt_tokens :])
        return self._chooser.choose(masked(outputs.logits[place], banned))

    def score(self, start: int, outputs: Outputs) -> None:
        """Score the tokens of the prompt that follow those from `start` on, each of which has an output.

        The graph gave the log-probabilities of its best tokens. They differ from the logits by one constant, the
        logarithm of the softmax's denominator, which is not computed again. Raises InvalidOutputError.
        """
        assert outputs.logits is not None
        following = self.request.prompt_ids[start + 1 : start + 1 + len(outputs.ids)]
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
        options, ended = self.request.options, self._finish_reason == "eos_token"
        tokens = self._tokens[self.num_prompt_tokens : len(self._tokens) - ended]
        length = max(1, self._num_new + options.num_forced_tokens)
        return (Hypothesis(tuple(tokens), self._score / length**options.length_penalty, ended),)


class SearchedSequence(Sequence):
    """A beam search, and greedy search where some tokens are forbidden: one row for each beam."""

    def __init__(self, ticket: Ticket, eos_ids: Seq[int], most_candidates: int, suppressed_ids: Seq[int] = ()) -> None:
        super().__init__(ticket)
        self._suppressed = frozenset(suppressed_ids)
        options = self.request.options
        self._search = BeamSearch(options, eos_ids)
        self._restrictions = Restrictions(options, self.request.prompt_ids) if options.is_restricted else None
        self.num_candidates = self._search.num_candidates
        if self._restrictions is not None:
            banned = self._restrictions.most_banned
            self.needs_logits = banned is None or self.num_candidates + banned > most_candidates
            self.num_candidates = 1 if self.needs_logits else self.num_candidates + (banned or 0)

    def accept(self, outputs: Outputs, first_row: int) -> bool:
        first, beams = self.first_row - first_row, len(self._search.histories)
        places = [first + row for row in self.rows[:beams]]
        log_probs = [outputs.log_probs[place] for place in places]
        if any(math.isnan(best[0]) for best in log_probs):
            raise InvalidOutputError(NO_NUMBER)
        ids = [outputs.ids[place] for place in places]
        if self._restrictions is not None:
            ids, log_probs = self._allowed(self._restrictions, outputs, places)
        step = self._search.advance(ids, log_probs)
        if step is None:
            return False
        self._reorder(step.parents)
        self.tokens = step.tokens
        return True

    def _allowed(
        self, restrictions: Restrictions, outputs: Outputs, places: Seq[int]
    ) -> tuple[list[list[int]], list[list[float]]]:
        """The candidates of each beam that may follow it."""
        ranked = []
        for place, history in zip(places, self._search.histories, strict=True):
            banned = restrictions.banned(history)
            if self.needs_logits:
                assert outputs.logits is not None
                logits = masked(outputs.logits[place], self._suppressed)
                ranked.append(best_without(banned | self._suppressed, logits, self._search.num_candidates))
            else:
                ranked.append(without(banned, outputs.ids[place], outputs.log_probs[place]))
        return [ids for ids, _ in ranked], [log_probs for _, log_probs in ranked]

    def _reorder(self, parents: list[int]) -> None:
        """Give each beam the row of its parent; after a prompt all have one parent."""
        if self.batch is None or self.batch.beam_size == 1:
            return  # still in the one row of prefill; moving to a slot makes the copies
        beams, copies = assign_rows(parents)
        rows, first = self.rows, self.first_row
        self.copies = [(first + rows[source], first + rows[destination]) for source, destination in copies]
        self.rows = [rows[beam] for beam in beams]

    def hypotheses(self) -> tuple[Hypothesis, ...]:
        return self._search.hypotheses


def sequence_of(ticket: Ticket, backend: Backend) -> GreedySequence | ChosenSequence | SearchedSequence:
    """The sequence of an admitted ticket: greedy, chosen or searched, by its options."""
    request = ticket.request
    eos_ids = () if request.ignore_eos else backend.eos_ids
    if (
        request.listener is not None
        or request.sampling.do_sample
        or request.sampling.changes_logits
        or request.wants_prompt_log_probs
        or request.top_n_tokens
    ):
        return ChosenSequence(ticket, eos_ids, backend.suppressed_ids)
    if request.options.beam_size > 1 or request.options.is_restricted:
        return SearchedSequence(ticket, eos_ids, backend.num_candidates, backend.suppressed_ids)
    return GreedySequence(ticket, eos_ids)
