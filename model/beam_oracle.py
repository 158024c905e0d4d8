"""Beam search as it is defined: no cache, no batch, every continuation ranked. Free of torch and numpy.

`model.reference` runs it on a model; every faster search must give the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Literal, NamedTuple

EarlyStopping = Literal["always", "heuristic", "never"]


class Hypothesis(NamedTuple):
    """A sequence without begin and end, and its score: log-probability over length^penalty, the end counted.

    `finished` is False where it was cut at the greatest length.
    """

    token_ids: list[int]
    score: float
    finished: bool = True


def search(
    next_log_probs: Callable[[list[int]], Sequence[float]],
    end_ids: Collection[int],
    beam_size: int,
    max_new_tokens: int,
    *,
    length_penalty: float = 1.0,
    num_hypotheses: int = 1,
    early_stopping: EarlyStopping = "heuristic",
    forced_end_id: int | None = None,
    num_forced_tokens: int = 0,
) -> list[Hypothesis]:
    """The best `num_hypotheses`, best first. `beam_size` and `max_new_tokens` are at least 1.

    `next_log_probs` gives the log-probability of every token (V) after the new tokens so far; minus infinity forbids
    one. Each step ranks all continuations of all live beams and looks at the best 2 x beam_size (more with several end
    tokens): an end token among the first beam_size of them finishes a hypothesis, the best beam_size others stay live.
    Once beam_size hypotheses have finished, the search ends: at once with "always" or a single beam; with "heuristic"
    when the best live beam, at its present length, scores no better than the worst of the best beam_size finished; with
    "never" when it would score no better at the greatest length. At `max_new_tokens` the live ones count as they stand.

    With `forced_end_id` this is the last of `max_new_tokens`, with a log-probability of 0. `num_forced_tokens` are
    added to the length that a score is divided by. Two tokens with equal scores are told apart by the smaller id, and
    two hypotheses by the one found first.
    """
    live: list[tuple[float, list[int]]] = [(0.0, [])]
    finished: list[Hypothesis] = []
    for step in range(1, max_new_tokens + 1):
        length = step + num_forced_tokens
        continuations = [
            (score + log_prob, [*tokens, token])
            for score, tokens in live
            for token, log_prob in enumerate(next_log_probs(tokens))
            if log_prob > -math.inf
        ]
        if forced_end_id is not None and step == max_new_tokens:
            continuations = [(score, [*tokens, forced_end_id]) for score, tokens in live]
        continuations.sort(key=lambda item: -item[0])
        live = []
        for rank, (score, tokens) in enumerate(continuations[: beam_size * max(2, 1 + len(end_ids))]):
            if tokens[-1] in end_ids:
                if rank < beam_size:
                    finished.append(Hypothesis(tokens[:-1], score / length**length_penalty))
            elif len(live) < beam_size:
                live.append((score, tokens))
        finished.sort(key=lambda hypothesis: -hypothesis.score)
        if len(finished) >= beam_size:
            greatest = early_stopping == "never" and length_penalty > 0
            attainable = max_new_tokens + num_forced_tokens if greatest else length
            is_over = early_stopping == "always" or beam_size == 1 or not live
            if is_over or live[0][0] / attainable**length_penalty <= finished[beam_size - 1].score:
                break
    else:
        length = max_new_tokens + num_forced_tokens
        finished += [Hypothesis(tokens, score / length**length_penalty, False) for score, tokens in live]
        finished.sort(key=lambda hypothesis: -hypothesis.score)
    return finished[:num_hypotheses]
