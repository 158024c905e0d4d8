"""Batched greedy and beam search in PyTorch, with a key-value cache: for scoring a model while and after it is trained.

Serving has its own engine, and `model.reference` is the oracle of both.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


from model.layers import KeyValue
from model.training.batches import pad
from model.transformer import Transformer


def length_penalty(length: int, exponent: float) -> float:
    """What a hypothesis' log-probability is divided by: length^exponent, the end token counted."""
    return float(length**exponent)


@torch.inference_mode()
def beam_search(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    beam_size: int = 1,
    length_exponent: float = 1.0,
    max_new_tokens: int | None = None,
) -> list[list[int]]:
    """The best translation of each source as token ids, without begin and end; greedy where the beam is 1.

    A row is finished when `beam_size` hypotheses have ended, or at `max_new_tokens` (default: 2 x its source + 10).
    """
    config, device = model.config, next(model.parameters()).device
    lengths = torch.tensor([len(source) for source in sources], device=device)
    limits = [min(max_new_tokens or 2 * len(s) + 10, config.max_seq_len - 1) for s in sources]
    memory = model.encode(pad(sources, config.pad_id).to(device), lengths)
    repeat = torch.arange(len(sources), device=device).repeat_interleave(beam_size)
    cross = [KeyValue(key[repeat], value[repeat]) for key, value in model.cross_cache(memory)]
    cache = model.empty_cache(len(repeat), max(limits) + 1)
    source_lengths = lengths[repeat]
    # Only the first beam of each row starts, or all beams would be the same.
    scores = torch.full((len(sources), beam_size), -torch.inf, device=device)
    scores[:, 0] = 0.0
    tokens = torch.full((len(repeat), 1), config.bos_id, device=device)
    histories = tokens.view(len(sources), beam_size, 1)
    finished: list[list[tuple[float, list[int]]]] = [[] for _ in sources]
    active = list(range(len(sources)))
    for step in range(max(limits)):
        write = torch.full((len(tokens),), step, device=device)
        states, cache = model.decode(tokens, write, cache, cross, source_lengths)
        log_probs = model.project(states[:, -1]).log_softmax(-1)  # (rows,V)
        totals = (scores.view(-1, 1) + log_probs).view(len(active), -1)
        best, flat = totals.topk(2 * beam_size if beam_size > 1 else 1, dim=-1)  # one of each pair may be the end
        parents, words = flat // config.vocab_size, flat % config.vocab_size
        kept_rows: list[int] = []
        kept_parents, kept_words, kept_scores = [], [], []
        for row, index in enumerate(active):
            live = []
            for score, parent, word in zip(best[row].tolist(), parents[row].tolist(), words[row].tolist(), strict=True):
                if word == config.eos_id and len(live) < beam_size:
                    ids = histories[row, parent, 1:].tolist()
                    finished[index].append((score / length_penalty(step + 1, length_exponent), ids))
                elif word != config.eos_id and len(live) < beam_size:
                    live.append((score, parent, word))
            if len(finished[index]) >= beam_size or step + 1 >= limits[index]:
                if not finished[index]:
                    score, parent, word = live[0]
                    ids = [*histories[row, parent, 1:].tolist(), word]
                    finished[index].append((score / length_penalty(step + 1, length_exponent), ids))
                continue
            kept_rows.append(row)
            kept_scores.append([score for score, _, _ in live])
            kept_parents.append([row * beam_size + parent for _, parent, _ in live])
            kept_words.append([word for _, _, word in live])
        if not kept_rows:
            break
        order = torch.tensor(kept_parents, device=device).view(-1)
        cache = [KeyValue(key[order], value[order]) for key, value in cache]
        cross = [KeyValue(key[order], value[order]) for key, value in cross]
        source_lengths = source_lengths[order]
        tokens = torch.tensor(kept_words, device=device).view(-1, 1)
        scores = torch.tensor(kept_scores, device=device)
        histories = torch.cat((histories.view(-1, step + 1)[order], tokens), 1).view(len(kept_rows), beam_size, -1)
        active = [active[row] for row in kept_rows]
    return [max(hypotheses)[1] for hypotheses in finished]


def translate_ids(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    beam_size: int = 1,
    length_exponent: float = 1.0,
    max_batch_rows: int = 128,
) -> list[list[int]]:
    """`beam_search` over many sources, in batches of like length, answered in the order of asking."""
    order = sorted(range(len(sources)), key=lambda index: -len(sources[index]))
    results: list[list[int]] = [[] for _ in sources]
    size = max(1, max_batch_rows // beam_size)
    for start in range(0, len(order), size):
        part = order[start : start + size]
        outputs = beam_search(model, [sources[index] for index in part], beam_size, length_exponent)
        for index, output in zip(part, outputs, strict=True):
            results[index] = output
    return results
