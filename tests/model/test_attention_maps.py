from typing import Any

import pytest
import torch
from torch import Tensor

from model.attention_maps import decoder_maps, encoder_maps
from model.decoding import pad
from model.layers import CrossAttention, SelfAttention
from model.transformer import Transformer
from tests.model.samples import make_model, random_rows

SOURCES, TARGETS = random_rows([6, 4], seed=1), random_rows([5, 5], seed=2)
LENGTHS = torch.tensor([6, 4])


def outputs_of(model: Transformer, name: str) -> list[Tensor]:
    """What enters the output projection of each attention of this kind while the model runs as it always does."""
    seen: list[Tensor] = []
    layers = model.encoder_layers if name == "encoder" else model.decoder_layers
    handles = []
    for layer in layers:
        attention = layer.get_submodule("cross_attention" if name == "cross" else "self_attention")
        assert isinstance(attention, SelfAttention | CrossAttention)
        handles.append(attention.output.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0])))
    if model.config.architecture == "encoder":
        model.encode(pad(SOURCES, 0), LENGTHS)
    elif model.config.architecture == "decoder":
        model(pad(TARGETS, 0))
    else:
        model(pad(TARGETS, 0), pad(SOURCES, 0), LENGTHS)
    for handle in handles:
        handle.remove()
    return seen


@pytest.mark.parametrize("norm_order", ["pre", "post"])
def test_maps_are_the_weights_that_the_forward_pass_uses(norm_order: str) -> None:
    model = make_model(norm_order=norm_order, num_encoder_layers=2, num_decoder_layers=2)
    memory, encoder = encoder_maps(model, pad(SOURCES, 0), LENGTHS)
    torch.testing.assert_close(memory, model.encode(pad(SOURCES, 0), LENGTHS))
    decoder, cross = decoder_maps(model, pad(TARGETS, 0), memory, LENGTHS)
    head_size = model.config.head_size
    for name, maps in (("encoder", encoder), ("decoder", decoder), ("cross", cross)):
        used = outputs_of(model, name)
        assert len(maps) == len(used) == 2
        for layer, attended in enumerate(used):
            values = values_of(model, name, layer, memory)
            heads = maps[layer].weights @ values.unflatten(-1, (-1, head_size)).transpose(1, 2)
            torch.testing.assert_close(heads.transpose(1, 2).flatten(2), attended, atol=1e-5, rtol=1e-5)


def values_of(model: Transformer, name: str, layer: int, memory: Tensor) -> Tensor:
    """The value vectors (B,K,E) of one attention, from a hook on its projection."""
    if name == "cross":
        return model.decoder_layers[layer].cross_attention.keys_and_values(memory).value
    seen: list[Tensor] = []
    layers = model.encoder_layers if name == "encoder" else model.decoder_layers
    projection = layers[layer].self_attention.query_key_value
    handle = projection.register_forward_hook(lambda _, __, output: seen.append(output))
    outputs_of(model, name)
    handle.remove()
    return seen[0][..., -model.config.cache_width :]


@pytest.mark.parametrize(
    "options",
    [
        {"architecture": "encoder", "embedding_norm": True, "num_token_types": 2},
        {"architecture": "decoder"},
        {
            "architecture": "decoder",
            "positions": "rotary",
            "norm": "rms",
            "num_kv_heads": 1,
            "gated_feed_forward": True,
        },
    ],
    ids=["encoder", "decoder", "llama"],
)
def test_rows_sum_to_one_and_hide_what_may_not_be_seen(options: dict[str, Any]) -> None:
    model = make_model(**options)
    if options["architecture"] == "encoder":
        _, ((weights, norms), *_) = encoder_maps(model, pad(SOURCES, 0), LENGTHS)
        assert float(weights[1, :, :, 4:].detach().abs().max()) == 0.0  # padding
    else:
        (weights, norms), *_ = decoder_maps(model, pad(TARGETS, 0))[0]
        assert float(weights.detach().triu(1).abs().max()) == 0.0  # the future
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:3]))
    assert weights.shape[1] == model.config.num_heads
    assert norms.shape == (2, model.config.num_heads, weights.shape[-1])


def test_value_norms_are_the_lengths_of_what_each_head_writes() -> None:
    model = make_model(architecture="encoder", num_encoder_layers=1)
    _, ((_, norms),) = encoder_maps(model, pad(SOURCES, 0), LENGTHS)
    attention, head_size = model.encoder_layers[0].self_attention, model.config.head_size
    memory = torch.empty(0)
    values = values_of(model, "encoder", 0, memory)
    for head in range(model.config.num_heads):
        part = slice(head * head_size, (head + 1) * head_size)
        written = values[..., part] @ attention.output.weight[:, part].T  # (B,K,E)
        torch.testing.assert_close(norms[:, head], written.norm(dim=-1))
