"""Batched greedy and beam search in PyTorch, with a key-value cache: for scoring a model while and after it is trained.

It gives what `model.reference` gives, many sources at a time. Serving has its own engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from model.beam_oracle import Hypothesis
from model.layers import KeyValue
from model.transformer import Transformer


def translate_ids(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    beam_size: int = 1,
    length_penalty: float = 1.0,
    max_batch_rows: int = 128,
) -> list[list[int]]:
    """`beam_search` over any number of sources, in batches of like length; the answers keep the sources' order."""
    order = sorted(range(len(sources)), key=lambda index: -len(sources[index]))
    size = max(1, max_batch_rows // beam_size)
    results: list[list[int]] = [[] for _ in sources]
    for start in range(0, len(order), size):
        part = order[start : start + size]
        hypotheses = beam_search(model, [sources[index] for index in part], beam_size, length_penalty)
        for index, hypothesis in zip(part, hypotheses, strict=True):
            results[index] = hypothesis.token_ids
    return results


@torch.inference_mode()
def beam_search(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    beam_size: int = 1,
    length_penalty: float = 1.0,
    max_new_tokens: int | None = None,
) -> list[Hypothesis]:
    """The best hypothesis of each source, as `model.reference.beam` finds it; greedy where `beam_size` is 1.

    `max_new_tokens` is by default twice a source's length and ten more. A model's positions bound it too.
    """
    limits = [2 * len(source) + 10 if max_new_tokens is None else max_new_tokens for source in sources]
    limits = [min(limit, model.config.max_seq_len) for limit in limits]
    searches = [_Search(beam_size, length_penalty, limit, model.config.eos_id) for limit in limits]
    rows = _Rows(model, sources, capacity=max(limits))
    active = searches
    while active:
        candidates = rows.step(2 * beam_size)
        parents: list[int] = []
        first = 0  # a search's beams are adjacent rows, from this one on
        for search in active:
            num_beams = len(search.live)
            kept = search.advance(candidates[first : first + num_beams])
            parents += [first + beam for beam in kept]
            first += num_beams
        active = [search for search in active if search.live]
        rows.select(parents, [beam.token_ids[-1] for search in active for beam in search.live])
    return [max(search.finished, key=lambda hypothesis: hypothesis.score) for search in searches]


class _Beam(NamedTuple):
    """A hypothesis that may still grow: the log-probability of its tokens, and the tokens."""

    score: float
    token_ids: list[int]


class _Search:
    """The search of one source: the arithmetic of `model.beam_oracle.search`, over the best candidates alone."""

    def __init__(self, beam_size: int, length_penalty: float, max_new_tokens: int, end_id: int) -> None:
        self.beam_size, self.length_penalty = beam_size, length_penalty
        self.max_new_tokens, self.end_id = max_new_tokens, end_id
        self.live = [_Beam(0.0, [])]
        """Best first; empty once the search has ended."""
        self.finished: list[Hypothesis] = []
        self.num_tokens = 0

    def advance(self, candidates: Sequence[Iterable[tuple[int, float]]]) -> list[int]:
        """Take the likeliest next tokens of each live beam as (id, log-probability), best first.

        Returns which beam each new one grew from.
        """
        self.num_tokens += 1
        ranked = [
            (beam.score + log_prob, index, token)
            for index, (beam, tokens) in enumerate(zip(self.live, candidates, strict=True))
            for token, log_prob in tokens
        ]
        ranked.sort(key=lambda candidate: -candidate[0])
        live: list[_Beam] = []
        parents: list[int] = []
        for rank, (score, index, token) in enumerate(ranked[: 2 * self.beam_size]):
            token_ids = self.live[index].token_ids
            if token == self.end_id:
                if rank < self.beam_size:
                    self._finish(score, token_ids)
            elif len(live) < self.beam_size:
                live.append(_Beam(score, [*token_ids, token]))
                parents.append(index)
        self.live = live
        if len(self.finished) >= self.beam_size and self._is_settled():
            self.live = []
        elif self.num_tokens == self.max_new_tokens:
            for beam in live:
                self._finish(beam.score, beam.token_ids)
            self.live = []
        return parents[: len(self.live)]

    def _is_settled(self) -> bool:
        """Whether the best live beam, at its present length, is no better than any of the best finished hypotheses."""
        if self.beam_size == 1 or not self.live:
            return True
        scores = sorted((hypothesis.score for hypothesis in self.finished), reverse=True)
        return bool(self.live[0].score / self.num_tokens**self.length_penalty <= scores[self.beam_size - 1])

    def _finish(self, score: float, token_ids: list[int]) -> None:
        self.finished.append(Hypothesis(token_ids, score / self.num_tokens**self.length_penalty))


class _Rows:
    """What the model keeps of every live beam, one row each: its last token, its cache and its source."""

    def __init__(self, model: Transformer, sources: Sequence[Sequence[int]], capacity: int) -> None:
        self.model = model
        device = model.embedding.token.weight.device
        self.source_lengths = torch.tensor([len(source) for source in sources], device=device)
        self.cross_cache = model.cross_cache(
            model.encode(pad(sources, model.config.pad_id, device), self.source_lengths)
        )
        self.cache = model.empty_cache(len(sources), capacity)
        self.last_ids = torch.full((len(sources), 1), model.config.bos_id, device=device)
        self.position = 0

    def step(self, num_candidates: int) -> list[list[tuple[int, float]]]:
        """Feed every row its last token; return each row's `num_candidates` likeliest next ones, best first."""
        write_indices = torch.full_like(self.source_lengths, self.position)
        states, self.cache = self.model.decode(
            self.last_ids, write_indices, self.cache, self.cross_cache, self.source_lengths
        )
        self.position += 1
        log_probs = self.model.project(states[:, -1]).log_softmax(-1)  # (B,V)
        best = log_probs.topk(min(num_candidates, log_probs.shape[-1]))
        return [list(zip(*row, strict=True)) for row in zip(best.indices.tolist(), best.values.tolist(), strict=True)]

    def select(self, parents: Sequence[int], last_ids: Sequence[int]) -> None:
        """Row i becomes a copy of row parents[i], with `last_ids[i]` at its end."""
        device = self.last_ids.device
        self.last_ids = torch.tensor(last_ids, dtype=torch.long, device=device)[:, None]
        if list(parents) == list(range(len(self.source_lengths))):
            return
        order = torch.tensor(parents, dtype=torch.long, device=device)
        self.cache = [KeyValue(key[order], value[order]) for key, value in self.cache]
        self.cross_cache = [KeyValue(key[order], value[order]) for key, value in self.cross_cache]
        self.source_lengths = self.source_lengths[order]


def pad(rows: Sequence[Sequence[int]], pad_id: int, device: torch.device | None = None) -> Tensor:
    """Rows of ids -> (B, longest) int64, padded on the right."""
    tensors = [torch.tensor(row, dtype=torch.long) for row in rows]
    return pad_sequence(tensors, batch_first=True, padding_value=pad_id).to(device)
