"""One of our checkpoints as a CTranslate2 model: https://opennmt.net/CTranslate2/.

Its tokens are strings, so a token's string is its id in decimal digits. It is given our own position table, because its
built-in one puts all sines before all cosines. See its `TransformerSpec` for the names of the weights.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
from ctranslate2.specs import common_spec, transformer_spec
from torch import Tensor, nn

from model.layers import CrossAttention, Embedding, FeedForward, SelfAttention
from model.transformer import Transformer

_ACTIVATIONS = {"relu": common_spec.Activation.RELU, "gelu": common_spec.Activation.GELU}


class ConversionError(ValueError):
    """A model that CTranslate2 cannot run as it is; the message says why."""


def convert(model: Transformer, folder: Path) -> Path:
    """Write `model`, an encoder-decoder, in float32 and return `folder`; CTranslate2 quantises as it loads."""
    config = model.config
    if config.architecture != "encoder_decoder":
        raise ConversionError(f"architecture is {config.architecture!r}, only 'encoder_decoder' translates")
    spec = transformer_spec.TransformerSpec.from_config(
        (config.num_encoder_layers, config.num_decoder_layers),
        config.num_heads,
        pre_norm=config.norm_order == "pre",
        activation=_ACTIVATIONS[config.activation],
    )
    _set_encoder(spec.encoder, model)
    _set_decoder(spec.decoder, model)
    tokens = [str(token_id) for token_id in range(config.vocab_size)]
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.config.layer_norm_epsilon = config.norm_eps
    spec.config.bos_token = spec.config.decoder_start_token = str(config.bos_id)
    spec.config.eos_token = str(config.eos_id)
    # There is no unknown token among ids; the padding, which nothing produces, stands in for it.
    spec.config.unk_token = str(config.pad_id)
    spec.validate()
    spec.optimize()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    spec.save(str(folder))
    return folder


def _set_encoder(spec: Any, model: Transformer) -> None:
    _set_embedding(spec.embeddings[0], spec, model.embedding)
    if model.config.norm_order == "pre":
        _set_norm(spec.layer_norm, model.encoder_norm)
    for layer_spec, layer in zip(spec.layer, model.encoder_layers, strict=True):
        _set_self_attention(layer_spec.self_attention, layer.self_attention, layer.self_attention_residual.norm)
        _set_feed_forward(layer_spec.ffn, layer.feed_forward, layer.feed_forward_residual.norm)


def _set_decoder(spec: Any, model: Transformer) -> None:
    config = model.config
    _set_embedding(spec.embeddings, spec, model.embedding)
    if config.norm_order == "pre":
        _set_norm(spec.layer_norm, model.decoder_norm)
    for layer_spec, layer in zip(spec.layer, model.decoder_layers, strict=True):
        _set_self_attention(layer_spec.self_attention, layer.self_attention, layer.self_attention_residual.norm)
        _set_cross_attention(layer_spec.attention, layer.cross_attention, layer.cross_attention_residual.norm)
        _set_feed_forward(layer_spec.ffn, layer.feed_forward, layer.feed_forward_residual.norm)
    spec.projection.weight = _array(model.embedding.token.weight if config.tied_embeddings else model.projection.weight)
    if config.final_bias:
        spec.projection.bias = _array(model.final_bias)


def _set_embedding(spec: Any, stack: Any, embedding: Embedding) -> None:
    spec.weight = _array(embedding.token.weight)
    stack.scale_embeddings = embedding.scale != 1.0
    stack.position_encodings.encodings = _array(embedding.position)


def _set_self_attention(spec: Any, attention: SelfAttention, norm: nn.Module) -> None:
    _set_norm(spec.layer_norm, norm)
    _set_linear(spec.linear[0], attention.query_key_value)
    _set_linear(spec.linear[1], attention.output)


def _set_cross_attention(spec: Any, attention: CrossAttention, norm: nn.Module) -> None:
    _set_norm(spec.layer_norm, norm)
    _set_linear(spec.linear[0], attention.query)
    _set_linear(spec.linear[1], attention.key_value)
    _set_linear(spec.linear[2], attention.output)


def _set_feed_forward(spec: Any, feed_forward: FeedForward, norm: nn.Module) -> None:
    _set_norm(spec.layer_norm, norm)
    _set_linear(spec.linear_0, feed_forward.expand)
    _set_linear(spec.linear_1, feed_forward.contract)


def _set_norm(spec: Any, norm: Any) -> None:
    spec.gamma, spec.beta = _array(norm.weight), _array(norm.bias)


def _set_linear(spec: Any, linear: nn.Linear) -> None:
    spec.weight, spec.bias = _array(linear.weight), _array(linear.bias)


def _array(tensor: Tensor) -> np.ndarray[Any, Any]:
    return tensor.detach().float().numpy()
