"""What PyTorch does of each task, on tensors that stay where they are; see `bench.peers.torch_static`."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bench.peers.torch_static import Mode, StaticDecoder, encode, prepare
from model.pooling import pool
from model.transformer import Transformer

Array = NDArray[np.int64]

LEAST_TOKENS = 4
"""Outputs are at least so long, because preparing a step runs it a few times."""


def _capacity(length: int) -> int:
    return -(-length // 8) * 8


class TorchTranslator:
    """Greedy or beam search over `sources` (B,S) of one length, until `max_new_tokens`; ends are not looked for."""

    def __init__(self, model: Transformer, sources: Array, beam_size: int, max_new_tokens: int, mode: Mode) -> None:
        (batch_size, source_tokens), size = sources.shape, beam_size
        num_rows = batch_size * size
        decoder = StaticDecoder(model, num_rows, _capacity(max_new_tokens), (batch_size, source_tokens))
        self._model, self._decoder, self._beam_size = model, decoder, size
        self._input = torch.from_numpy(np.ascontiguousarray(sources))
        device = decoder.device
        self._source = self._input.to(device)
        self._ids = torch.zeros((num_rows, 1), dtype=torch.long, device=device)
        self._scores = torch.zeros((batch_size, size), device=device)
        self._first = torch.arange(batch_size, device=device)[:, None] * size
        self._tokens = torch.zeros((max(max_new_tokens, LEAST_TOKENS), num_rows), dtype=torch.long, device=device)
        self._parents = torch.zeros_like(self._tokens)
        self._encode = prepare(self._encode_source, mode, device)
        self._reset()
        self._step = prepare(self._search if size > 1 else self._choose, mode, device)

    def _encode_source(self) -> None:
        self._decoder.keep_source(encode(self._model, self._source))

    def _reset(self) -> None:
        self._decoder.position.zero_()
        self._ids.fill_(self._model.config.bos_id)
        self._scores.fill_(-torch.inf)
        self._scores[:, 0] = 0.0  # all beams are one at first

    def _choose(self) -> None:
        chosen = self._decoder.advance(self._ids).argmax(-1)
        self._tokens.index_copy_(0, self._decoder.position - 1, chosen[None])
        self._ids.copy_(chosen[:, None])

    def _search(self) -> None:
        log_probs = self._decoder.advance(self._ids).float().log_softmax(-1)  # (B*K,V)
        sums = self._scores[:, :, None] + log_probs.unflatten(0, self._scores.shape)  # (B,K,V)
        scores, places = sums.flatten(1).topk(self._beam_size)
        rows = (self._first + places // log_probs.shape[-1]).flatten()
        chosen = (places % log_probs.shape[-1]).flatten()
        self._decoder.reorder(rows)
        self._scores.copy_(scores)
        self._tokens.index_copy_(0, self._decoder.position - 1, chosen[None])
        self._parents.index_copy_(0, self._decoder.position - 1, rows[None])
        self._ids.copy_(chosen[:, None])

    @torch.no_grad()
    def __call__(self, num_new_tokens: int) -> list[list[int]]:
        self._source.copy_(self._input)
        self._reset()
        self._encode()
        for _ in range(num_new_tokens):
            self._step()
        tokens = self._tokens[:num_new_tokens].cpu()
        if self._beam_size == 1:
            greedy: list[list[int]] = tokens.T.tolist()
            return greedy
        return _follow(tokens, self._parents[:num_new_tokens].cpu(), self._beam_size)


def _follow(tokens: Tensor, parents: Tensor, beam_size: int) -> list[list[int]]:
    """The best beam of each source, from its last token back: `tokens` and `parents` are (steps, B*K)."""
    rows = torch.arange(0, tokens.shape[1], beam_size)
    found = []
    for step in range(len(tokens) - 1, -1, -1):
        found.append(tokens[step, rows])
        rows = parents[step, rows]
    best: list[list[int]] = torch.stack(found[::-1], dim=1).tolist()
    return best


class TorchGenerator:
    """Greedy continuation of `prompts` (B,T) of one length, until `max_new_tokens`; ends are not looked for."""

    def __init__(self, model: Transformer, prompts: Array, max_new_tokens: int, mode: Mode) -> None:
        batch_size, prompt_tokens = prompts.shape
        longest = max(max_new_tokens, LEAST_TOKENS)
        self._decoder = StaticDecoder(model, batch_size, _capacity(prompt_tokens + longest))
        self._input = torch.from_numpy(np.ascontiguousarray(prompts))
        device = self._decoder.device
        self._prompts = self._input.to(device)
        self._ids = torch.zeros((batch_size, 1), dtype=torch.long, device=device)
        self._tokens = torch.zeros((longest, batch_size), dtype=torch.long, device=device)
        self._place = torch.zeros(1, dtype=torch.long, device=device)
        self._read = prepare(self._read_prompts, mode, device)
        self._reset()
        self._step = prepare(self._choose, mode, device)

    def _reset(self) -> None:
        self._decoder.position.zero_()
        self._place.zero_()

    def _read_prompts(self) -> None:
        self._reset()  # here, so that it can be prepared without running out of the cache
        self._keep(self._decoder.advance(self._prompts))

    def _choose(self) -> None:
        self._keep(self._decoder.advance(self._ids))

    def _keep(self, logits: Tensor) -> None:
        chosen = logits.argmax(-1)
        self._tokens.index_copy_(0, self._place, chosen[None])
        self._place.add_(1)
        self._ids.copy_(chosen[:, None])

    @torch.no_grad()
    def __call__(self, num_new_tokens: int) -> list[list[int]]:
        self._prompts.copy_(self._input)
        self._read()
        for _ in range(num_new_tokens - 1):
            self._step()
        tokens: list[list[int]] = self._tokens[:num_new_tokens].cpu().T.tolist()
        return tokens


class TorchEncoder:
    """Pooled means of texts (B,S) of one length, as float32 on the host."""

    def __init__(self, model: Transformer, texts: Array, mode: Mode) -> None:
        self._model = model
        device = model.embedding.token.weight.device
        self._input = torch.from_numpy(np.ascontiguousarray(texts))
        self._texts = self._input.to(device)
        self._lengths = torch.full((len(texts),), texts.shape[1], device=device)
        self._pooled = torch.zeros((len(texts), model.config.d_model), device=device)
        self._work = prepare(self._embed, mode, device)

    def _embed(self) -> None:
        states = encode(self._model, self._texts)
        self._pooled.copy_(pool(states.float(), self._lengths, "mean"))

    @torch.no_grad()
    def __call__(self) -> NDArray[np.float32]:
        self._texts.copy_(self._input)
        self._work()
        pooled: NDArray[np.float32] = self._pooled.cpu().numpy()
        return pooled
