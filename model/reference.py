"""Slow, obvious decoding: one sentence, no cache, no batch. The oracle that every faster decoder must equal.

Two tokens with exactly equal scores are told apart by the smaller id, and two hypotheses by the one found first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from model.transformer import Transformer


class Hypothesis(NamedTuple):
    """A decoded sequence without begin and end, and its score: log-probability over length^penalty, the end counted."""

    token_ids: list[int]
    score: float


@torch.inference_mode()
def next_log_probs(
    model: Transformer, source: Sequence[int] | None, prefix: Sequence[int], suppressed: Sequence[int] = ()
) -> list[float]:
    """The log-probability of every token of the vocabulary (V) after `prefix`, computed from nothing.

    Those in `suppressed` have the probability 0.
    """
    target_ids = torch.tensor([list(prefix)])
    if source is None:
        states = model(target_ids)
    else:
        states = model(target_ids, torch.tensor([list(source)]), torch.tensor([len(source)]))
    logits = model.project(states[0, -1])
    logits[list(suppressed)] = -torch.inf
    return logits.log_softmax(-1).tolist()


def greedy(
    model: Transformer,
    source: Sequence[int] | None,
    max_new_tokens: int,
    prompt: Sequence[int] = (),
    suppressed: Sequence[int] = (),
) -> list[int]:
    """Take the likeliest token until the end token, or until `max_new_tokens` have been taken."""
    return beam(model, source, 1, max_new_tokens, prompt=prompt, suppressed=suppressed)[0].token_ids


def beam(
    model: Transformer,
    source: Sequence[int] | None,
    beam_size: int,
    max_new_tokens: int,
    length_penalty: float = 1.0,
    num_hypotheses: int = 1,
    prompt: Sequence[int] = (),
    suppressed: Sequence[int] = (),
) -> list[Hypothesis]:
    """Beam search; the best `num_hypotheses`, best first. `beam_size` and `max_new_tokens` are at least 1.

    Each step ranks all continuations of all live beams and looks at the best 2 x beam_size: an end token among the
    first beam_size of them finishes a hypothesis, the best beam_size others live on. The search ends when beam_size
    hypotheses have finished, or at `max_new_tokens`, where the live ones count as they stand.
    """
    end = model.config.eos_id
    begin = list(prompt) or [model.config.bos_id]
    live: list[tuple[float, list[int]]] = [(0.0, [])]
    finished: list[Hypothesis] = []
    for step in range(1, max_new_tokens + 1):
        continuations = []
        for score, tokens in live:
            log_probs = next_log_probs(model, source, begin + tokens, suppressed)
            continuations += [(score + log_prob, [*tokens, token]) for token, log_prob in enumerate(log_probs)]
        continuations.sort(key=lambda item: -item[0])
        live = []
        for rank, (score, tokens) in enumerate(continuations[: 2 * beam_size]):
            if tokens[-1] == end:
                if rank < beam_size:
                    finished.append(Hypothesis(tokens[:-1], score / step**length_penalty))
            elif len(live) < beam_size:
                live.append((score, tokens))
        if len(finished) >= beam_size:
            break
    else:
        finished += [Hypothesis(tokens, score / max_new_tokens**length_penalty) for score, tokens in live]
    finished.sort(key=lambda hypothesis: -hypothesis.score)
    return finished[:num_hypotheses]
