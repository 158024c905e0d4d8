"""Guided alignment: one head of the cross-attention is trained to align words, beside translating.

Garg et al. 2019, "Jointly learning to align and translate with transformer models" (https://arxiv.org/abs/1909.02074),
here at the decoder position that reads a target token, which knows it (Chen et al. 2020, https://arxiv.org/abs/2004.14837).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from model.layers import CrossAttention, KeyValue
from model.training.subwords import Words
from model.transformer import Transformer


class TokenLink(NamedTuple):
    """Tokens of a source that the tokens of a target word are linked to, by their places in the two rows of a batch."""

    sources: tuple[int, ...]
    targets: tuple[int, ...]


def token_links(
    links: Sequence[tuple[int, int]], source: Words, target: Words, source_start: int, target_start: int
) -> list[TokenLink]:
    """Links of words (source, target) as links of tokens; the rows have `..._start` tokens before the text.

    ValueError for a link to a word that there is not.
    """
    if any(i >= len(source) or j >= len(target) for i, j in links):
        raise ValueError(f"a link of {sorted(links)} leads beyond the {len(source)} and {len(target)} words")
    places = [_places(source, source_start), _places(target, target_start)]
    by_target: dict[int, list[int]] = {}
    for i, j in sorted(links):
        by_target.setdefault(j, []).extend(places[0][i])
    return [TokenLink(tuple(sources), tuple(places[1][j])) for j, sources in by_target.items()]


def _places(words: Words, start: int) -> list[range]:
    ends = itertools.accumulate(map(len, words), initial=start)
    return [range(first, last) for first, last in itertools.pairwise(ends)]


def link_weights(rows: Sequence[Sequence[TokenLink]], num_targets: int, num_sources: int) -> Tensor:
    """The map (B,T,S) that a head is trained towards: a linked row is even over its sources, another row is zeros."""
    weights = torch.zeros(len(rows), num_targets, num_sources)
    for number, links in enumerate(rows):
        for link in links:
            for target in link.targets:
                weights[number, target, list(link.sources)] = 1 / len(link.sources)
    return weights


def guided_layer(model: Transformer) -> int:
    """The decoder layer whose head is trained: the next to last, or the only one."""
    return max(0, len(model.decoder_layers) - 2)


def decode_with_map(
    model: Transformer, input_ids: Tensor, source_ids: Tensor, source_lengths: Tensor, head: int
) -> tuple[Tensor, Tensor]:
    """`Transformer.forward`, and the logarithm (B,T,S) of the map of `head` of the guided layer."""
    cross_cache = model.cross_cache(model.encode(source_ids, source_lengths))
    states, places = model.enter_decoder(input_ids)
    log_map = states.new_empty(0)
    for index, (layer, place, source) in enumerate(zip(model.decoder_layers, places, cross_cache, strict=True)):
        if index == guided_layer(model):
            change = layer.self_attention(layer.self_attention_residual.enter(states), place, None)
            between = layer.self_attention_residual.leave(states, change)
            entering = layer.cross_attention_residual.enter(between)
            log_map = _log_map(layer.cross_attention, entering, source, source_lengths, head)
        states = layer(states, place, source, source_lengths)
    output: Tensor = model.decoder_norm(states)
    return output, log_map


def _log_map(attention: CrossAttention, states: Tensor, source: KeyValue, lengths: Tensor, head: int) -> Tensor:
    size = source.key.shape[-1] // attention.num_kv_heads
    query = attention.query(states)[..., head * size : (head + 1) * size]
    shared = head * attention.num_kv_heads // attention.num_heads
    key = source.key[..., shared * size : (shared + 1) * size]
    scores = (query @ key.mT).float() * (attention.scale or size**-0.5)
    is_real = torch.arange(key.shape[1], device=key.device) < lengths[:, None]  # (B,S)
    log_map: Tensor = scores.masked_fill(~is_real[:, None], torch.finfo(scores.dtype).min).log_softmax(-1)
    return log_map


def guided_loss(log_map: Tensor, weights: Tensor) -> Tensor:
    """Cross-entropy (nats) of a head's attention against `link_weights`, summed over linked rows; both (B,T,S)."""
    return -(weights * log_map).sum()
