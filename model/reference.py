"""Slow, obvious decoding: one sentence, no cache, no batch. The oracle that every faster decoder must equal."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from model.beam_oracle import EarlyStopping, Hypothesis, search
from model.transformer import Transformer


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
    early_stopping: EarlyStopping = "heuristic",
) -> list[Hypothesis]:
    """`model.beam_oracle.search` on a model; the best `num_hypotheses`, best first."""
    begin = list(prompt) or [model.config.bos_id]
    return search(
        lambda tokens: next_log_probs(model, source, begin + tokens, suppressed),
        (model.config.eos_id,),
        beam_size,
        max_new_tokens,
        length_penalty=length_penalty,
        num_hypotheses=num_hypotheses,
        early_stopping=early_stopping,
    )
