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
from model.layers import DecoderLayer, Embedding, EmbeddingSum, EncoderLayer, KeyValue, make_norm
from model.positions import AttentionBias, Place, RelativeBias, RotaryTable


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
        self.embedding = Embedding(config, config.vocab_size)
        self.source_embedding: EmbeddingSum | None = None  # the encoder's, where it is not the decoder's
        if config.source_embedding != "shared":
            is_own = config.source_embedding == "own"
            self.source_embedding = Embedding(config, config.num_source_tokens) if is_own else EmbeddingSum(config)
        self.rotary = RotaryTable(config) if config.positions == "rotary" else None
        self.encoder_bias = AttentionBias(config, config.num_encoder_layers, is_causal=False)
        self.decoder_bias = AttentionBias(config, config.num_decoder_layers, is_causal=True)
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
        elif isinstance(module, RelativeBias):
            nn.init.normal_(module.weight, std=self.config.d_model**-0.5)
        elif isinstance(module, EmbeddingSum):
            if isinstance(module, Embedding):
                # E^-1/2, so that the tied projection starts with logits of unit size; the embedding's scale undoes it.
                nn.init.normal_(module.token.weight, std=self.config.d_model**-0.5)
            if self.config.positions == "learned":
                nn.init.normal_(module.position, std=0.02)
            if self.config.num_token_types:
                nn.init.normal_(module.token_type, std=0.02)

    def enter_encoder(self, input_ids: Tensor, token_type_ids: Tensor | None = None) -> tuple[Tensor, list[Place]]:
        """The encoder's inputs for rows (B,S): states (B,S,E), and the positions for each layer."""
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)[None]
        source = self.source_embedding
        if source is None:
            states = self.embedding(input_ids, positions, token_type_ids)
        else:
            tokens = source.token if isinstance(source, Embedding) else self.embedding.token
            states = source.add(tokens(input_ids), positions, token_type_ids)
        bias = self.encoder_bias(positions, input_ids.shape[1], states.dtype)
        return states, self._places(input_ids, positions, bias)

    def enter_decoder(
        self, input_ids: Tensor, positions: Tensor | None = None, num_keys: int | None = None
    ) -> tuple[Tensor, list[Place]]:
        """The same for the decoder and rows (B,T) at `positions` (B,T), which attend to `num_keys`.

        By default they stand from position 0 on and attend to each other.
        """
        if positions is None:
            positions = torch.arange(input_ids.shape[1], device=input_ids.device)[None]
        states = self.embedding(input_ids, positions)
        bias = self.decoder_bias(positions, input_ids.shape[1] if num_keys is None else num_keys, states.dtype)
        return states, self._places(input_ids, positions, bias)

    def _places(self, input_ids: Tensor, positions: Tensor, biases: list[Tensor | None]) -> list[Place]:
        """One for each bias, with `positions` (1,T) or (B,T) for each row of `input_ids` (B,T)."""
        rotation = None if self.rotary is None else self.rotary(positions.expand_as(input_ids))
        return [Place(rotation, bias) for bias in biases]

    def encode(self, input_ids: Tensor, lengths: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """`input_ids` (B,S), of which `lengths` (B) are real, -> one vector a token, (B,S,E).

        `token_type_ids` (B,S) tells a second text from the first, where the model has token types; None is all 0.
        """
        if not self.encoder_layers:
            raise ValueError(f"a model of architecture {self.config.architecture!r} has no encoder")
        states, places = self.enter_encoder(input_ids, token_type_ids)
        for layer, place in zip(self.encoder_layers, places, strict=True):
            states = layer(states, place, lengths)
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
        # Not write_indices + T: the sum with a shape would be made on the host, and copied to a device at every step.
        lengths = positions[:, -1] + 1
        states, places = self.enter_decoder(input_ids, positions, cache[0].key.shape[1])
        new_cache = []
        for index, layer in enumerate(self.decoder_layers):
            source = cross_cache[index] if cross_cache is not None else None
            states, layer_cache = layer.step(
                states, places[index], cache[index], write_indices, lengths, source, source_lengths
            )
            new_cache.append(layer_cache)
        return self.decoder_norm(states), new_cache

    def project(self, states: Tensor) -> Tensor:
        """The decoder's output (...,E) -> logits over the vocabulary (...,V)."""
        if self.config.scale_projection:
            states = states * self.config.d_model**-0.5
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
        states, places = self.enter_decoder(target_ids)
        for layer, place, source in zip(self.decoder_layers, places, cross_cache, strict=True):
            states = layer(states, place, source, source_lengths)
        output: Tensor = self.decoder_norm(states)
        return output

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
