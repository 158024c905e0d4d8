"""The transformer: one module, three architectures.

`encoder_decoder` is Vaswani et al. 2017 (https://arxiv.org/abs/1706.03762), `encoder` is BERT (Devlin et al. 2019,
https://arxiv.org/abs/1810.04805), `decoder` is GPT (Radford et al. 2018). Rows are padded on the right, and `lengths`
counts the real positions of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from model.config import ModelConfig
from model.layers import DecoderLayer, Embedding, EncoderLayer, KeyValue, make_norm
from model.positions import RotaryTable, Rotation


class Transformer(nn.Module):
    """A transformer built from its configuration, with weights drawn afresh.

    An encoder has `encode`; a decoder has `forward` (training) and `decode` (with a cache), each followed by `project`;
    an encoder-decoder has them all, with `cross_cache` between the two halves.
    """

    # Both are an nn.ModuleList, whose type cannot say of what.
    encoder_layers: Sequence[EncoderLayer]
    decoder_layers: Sequence[DecoderLayer]

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config)
        self.rotary = RotaryTable(config) if config.positions == "rotary" else None
        encoder_layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_encoder_layers))
        decoder_layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_decoder_layers))
        self.encoder_layers = cast("Sequence[EncoderLayer]", encoder_layers)
        self.decoder_layers = cast("Sequence[DecoderLayer]", decoder_layers)
        # Pre-norm leaves the last sum without a norm, so each stack ends in one.
        self.encoder_norm = self._stack_norm(config.num_encoder_layers)
        self.decoder_norm = self._stack_norm(config.num_decoder_layers)
        if config.num_decoder_layers and not config.tied_embeddings:
            self.projection = nn.Linear(config.d_model, config.vocab_size, bias=False)
        if config.num_decoder_layers and config.final_bias:
            self.final_bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.apply(self._initialise)

    def _stack_norm(self, num_layers: int) -> nn.Module:
        if num_layers and self.config.norm_order == "pre":
            return make_norm(self.config, self.config.d_model)
        return nn.Identity()

    def _initialise(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, Embedding):
            # E^-1/2, so that the tied projection starts with logits of unit size; the embedding's scale undoes it.
            nn.init.normal_(module.token.weight, std=self.config.d_model**-0.5)
            if self.config.positions == "learned":
                nn.init.normal_(module.position, std=0.02)
            if self.config.num_token_types:
                nn.init.normal_(module.token_type, std=0.02)

    def embed(self, input_ids: Tensor, token_type_ids: Tensor | None = None) -> tuple[Tensor, Rotation | None]:
        """What enters the first layer for rows (B,T) from position 0 on: states (B,T,E), and the rotation."""
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)[None]
        return self.embedding(input_ids, positions, token_type_ids), self._rotation(input_ids, positions)

    def encode(self, input_ids: Tensor, lengths: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """`input_ids` (B,S), of which `lengths` (B) are real, -> one vector a token, (B,S,E).

        `token_type_ids` (B,S) tells a second text from the first, where the model has token types; None is all 0.
        """
        if not self.encoder_layers:
            raise ValueError(f"a model of architecture {self.config.architecture!r} has no encoder")
        states, rotation = self.embed(input_ids, token_type_ids)
        for layer in self.encoder_layers:
            states = layer(states, rotation, lengths)
        memory: Tensor = self.encoder_norm(states)
        return memory

    def cross_cache(self, memory: Tensor) -> list[KeyValue]:
        """The encoder's output (B,S,E) -> each decoder layer's cross keys and values (B,S,KV*D)."""
        return [layer.cross_attention.keys_and_values(memory) for layer in self.decoder_layers]

    def empty_cache(self, num_rows: int, capacity: int) -> list[KeyValue]:
        """A cache of zeros for each decoder layer, (num_rows, capacity, KV*D)."""
        reference = self.embedding.token.weight
        shape = (num_rows, capacity, self.config.cache_width)
        return [KeyValue(reference.new_zeros(shape), reference.new_zeros(shape)) for _ in self.decoder_layers]

    def decode(
        self,
        input_ids: Tensor,
        write_indices: Tensor,
        cache: Sequence[KeyValue],
        cross_cache: Sequence[KeyValue] | None = None,
        source_lengths: Tensor | None = None,
    ) -> tuple[Tensor, list[KeyValue]]:
        """Advance each row by T tokens: states (B,T,E) and the new cache.

        `input_ids` (B,T) stand at positions write_indices[b] to write_indices[b]+T-1 of row b, so one call serves
        prefill (write index 0), chunks and single steps. A row with fewer than T new tokens is padded on the right;
        what its padding leaves in the cache is out of sight until the next call overwrites it.
        """
        self._check_source(cross_cache is not None)
        positions = write_indices[:, None] + torch.arange(input_ids.shape[1], device=input_ids.device)
        states, rotation = self.embedding(input_ids, positions), self._rotation(input_ids, positions)
        new_cache = []
        for index, layer in enumerate(self.decoder_layers):
            source = cross_cache[index] if cross_cache is not None else None
            states, layer_cache = layer.step(states, rotation, cache[index], write_indices, source, source_lengths)
            new_cache.append(layer_cache)
        return self.decoder_norm(states), new_cache

    def project(self, states: Tensor) -> Tensor:
        """The decoder's output (...,E) -> logits over the vocabulary (...,V)."""
        weight: Tensor = self.embedding.token.weight if self.config.tied_embeddings else self.projection.weight
        return nn.functional.linear(states, weight, self.final_bias if self.config.final_bias else None)

    def forward(
        self, target_ids: Tensor, source_ids: Tensor | None = None, source_lengths: Tensor | None = None
    ) -> Tensor:
        """Teacher forcing without a cache: `target_ids` (B,T), and the source of an encoder-decoder, -> states (B,T,E).

        `project` turns the states into logits; training projects the positions that count and no padding.
        """
        self._check_source(source_ids is not None)
        cross_cache: Sequence[KeyValue | None] = [None] * len(self.decoder_layers)
        if source_ids is not None and source_lengths is not None:
            cross_cache = self.cross_cache(self.encode(source_ids, source_lengths))
        states, rotation = self.embed(target_ids)
        for layer, source in zip(self.decoder_layers, cross_cache, strict=True):
            states = layer(states, rotation, source, source_lengths)
        output: Tensor = self.decoder_norm(states)
        return output

    def _rotation(self, input_ids: Tensor, positions: Tensor) -> Rotation | None:
        """What the layers rotate by, with `positions` (1,T) or (B,T) for each row of `input_ids` (B,T)."""
        if self.rotary is None:
            return None
        rotation: Rotation = self.rotary(positions.expand_as(input_ids))
        return rotation

    def _check_source(self, is_given: bool) -> None:
        # A decoder left without the source that it was built for would answer all the same, and wrongly.
        architecture = self.config.architecture
        if architecture == "encoder":
            raise ValueError("a model of architecture 'encoder' has no decoder: call encode")
        if is_given != (architecture == "encoder_decoder"):
            raise ValueError(f"a model of architecture {architecture!r} {'takes no' if is_given else 'needs a'} source")

    def num_parameters(self) -> int:
        """Trained numbers; a tied embedding counts once."""
        return sum(parameter.numel() for parameter in self.parameters())
