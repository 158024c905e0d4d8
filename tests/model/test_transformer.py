import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from model.decoding import pad
from model.layers import ACTIVATIONS, KeyValue, SelfAttention
from model.positions import Place, sinusoids
from model.transformer import Transformer
from tests.model.samples import make_config, make_model, random_rows

OPTIONS: list[dict[str, Any]] = [
    {"norm_order": norm_order, "activation": activation, "positions": positions, "tied_embeddings": tied}
    for norm_order, activation, positions, tied in [
        ("pre", "relu", "sinusoidal", True),
        ("pre", "gelu", "learned", False),
        ("post", "relu", "learned", True),
        ("post", "gelu", "sinusoidal", False),
    ]
]
OPTIONS += [
    {"positions": "none", "relative_bias": "shared", "relative_buckets": 8, "relative_max_distance": 12},
    {
        "positions": "none",
        "relative_bias": "per_layer",
        "attention_scale": 1.0,
        "scale_projection": True,
        "attention_window": 2,
        "windowed_layers": (1,),
    },
    {"sinusoids": "halves", "position_offset": 3, "norm_order": "post"},
]
COMBINATIONS: list[dict[str, Any]] = [
    {
        "norm_order": norm_order,
        "activation": activation,
        "positions": positions,
        "tied_embeddings": tied,
        "final_bias": bias,
    }
    for norm_order in ("pre", "post")
    for activation in ("relu", "gelu")
    for positions in ("sinusoidal", "learned")
    for tied in (True, False)
    for bias in (True, False)
]
ARCHITECTURES = ("encoder_decoder", "decoder")


def full_logits(model: Transformer, targets: list[list[int]], sources: list[list[int]] | None) -> list[Tensor]:
    """The logits of each row by itself, without padding and without a cache."""
    results = []
    for index, target in enumerate(targets):
        if sources is None:
            states = model(torch.tensor([target]))
        else:
            states = model(torch.tensor([target]), torch.tensor([sources[index]]), torch.tensor([len(sources[index])]))
        results.append(model.project(states)[0])
    return results


class Cached:
    """A model and the caches of some rows, advanced by right-padded chunks."""

    def __init__(self, model: Transformer, num_rows: int, sources: list[list[int]] | None) -> None:
        self.model, self.sources = model, sources
        self.cache = model.empty_cache(num_rows, 16)
        self.lengths = torch.zeros(num_rows, dtype=torch.long)
        self.cross: list[KeyValue] | None = None
        self.source_lengths: Tensor | None = None
        if sources is not None:
            self.source_lengths = torch.tensor([len(source) for source in sources])
            self.cross = model.cross_cache(model.encode(pad(sources, 0), self.source_lengths))

    def advance(self, chunks: list[list[int]]) -> list[Tensor]:
        states, self.cache = self.model.decode(
            pad(chunks, 0), self.lengths, self.cache, self.cross, self.source_lengths
        )
        self.lengths = self.lengths + torch.tensor([len(chunk) for chunk in chunks])
        logits = self.model.project(states)
        return [logits[row, : len(chunk)] for row, chunk in enumerate(chunks)]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("cuts", [[9], [1] * 9, [4, 1, 1, 3], [2, 5, 2]], ids=["prefill", "steps", "mixed", "chunks"])
@torch.inference_mode()
def test_cached_logits_equal_uncached_ones(architecture: str, options: dict[str, Any], cuts: list[int]) -> None:
    model = make_model(architecture=architecture, **options)
    sources = random_rows([7, 3], seed=1) if architecture == "encoder_decoder" else None
    targets = random_rows([9, 9], seed=2)
    cached, outputs, start = Cached(model, 2, sources), [[], []], 0  # type: ignore[var-annotated]
    for size in cuts:
        for row, logits in enumerate(cached.advance([target[start : start + size] for target in targets])):
            outputs[row].append(logits)
        start += size
    for row, wanted in enumerate(full_logits(model, targets, sources)):
        torch.testing.assert_close(torch.cat(outputs[row]), wanted, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@torch.inference_mode()
def test_rows_at_different_places_share_a_step(architecture: str) -> None:
    model = make_model(architecture=architecture)
    sources = random_rows([2, 8, 5], seed=1) if architecture == "encoder_decoder" else None
    targets = random_rows([6, 9, 4], seed=2)
    cached = Cached(model, 3, sources)
    parts = [cached.advance([targets[0][:3], targets[1][:5], targets[2][:1]])]
    parts.append(cached.advance([targets[0][3:4], targets[1][5:8], targets[2][1:3]]))
    parts.append(cached.advance([targets[0][4:], targets[1][8:], targets[2][3:]]))
    for row, wanted in enumerate(full_logits(model, targets, sources)):
        torch.testing.assert_close(torch.cat([part[row] for part in parts]), wanted, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@torch.inference_mode()
def test_a_later_token_never_changes_an_earlier_output(architecture: str) -> None:
    model = make_model(architecture=architecture)
    sources = random_rows([5], seed=1) if architecture == "encoder_decoder" else None
    target = random_rows([8], seed=2)[0]
    before = full_logits(model, [target], sources)[0]
    for position in range(1, 8):
        changed = [*target[:position], *((token - 3) % 20 + 4 for token in target[position:])]
        after = full_logits(model, [changed], sources)[0]
        torch.testing.assert_close(after[:position], before[:position], atol=1e-6, rtol=1e-5)
        assert not torch.allclose(after[position], before[position], atol=1e-3)


@torch.inference_mode()
def test_padding_never_changes_a_row() -> None:
    model = make_model()
    sources, targets = random_rows([3, 9, 6], seed=1), random_rows([7, 2, 5], seed=2)
    lengths = torch.tensor([3, 9, 6])
    wanted = full_logits(model, targets, sources)
    for pad_id in (0, 23):  # what stands in the padding has no part in it either
        logits = model.project(model(pad(targets, pad_id), pad(sources, pad_id), lengths))
        for row, target in enumerate(targets):
            torch.testing.assert_close(logits[row, : len(target)], wanted[row], atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("norm_order", ["pre", "post"])
@torch.inference_mode()
def test_padding_never_changes_an_encoding(norm_order: str) -> None:
    model = make_model(architecture="encoder", norm_order=norm_order)
    rows = random_rows([3, 9, 6], seed=1)
    together = model.encode(pad(rows, 0), torch.tensor([3, 9, 6]))
    for row, ids in enumerate(rows):
        alone = model.encode(torch.tensor([ids]), torch.tensor([len(ids)]))[0]
        torch.testing.assert_close(together[row, : len(ids)], alone, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("options", COMBINATIONS, ids=lambda options: "-".join(map(str, options.values())))
def test_every_combination_of_options_trains_all_its_weights(options: dict[str, Any]) -> None:
    model = make_model(**options).train()
    assert model.config.final_bias == hasattr(model, "final_bias")
    assert model.config.tied_embeddings != hasattr(model, "projection")
    sources, targets = random_rows([6, 4], seed=1), random_rows([5, 5], seed=2)
    states = model(pad(targets, 0), pad(sources, 0), torch.tensor([6, 4]))
    logits = model.project(states)
    assert logits.shape == (2, 5, 24)
    logits.log_softmax(-1)[..., 7].sum().backward()
    without = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
    assert without == []
    assert model.num_parameters() == sum(tensor.numel() for tensor in model.state_dict().values())


@pytest.mark.parametrize("activation", ["gelu_tanh", "silu"])
def test_an_encoder_as_bert_has_it_trains_all_its_weights(activation: str) -> None:
    model = make_model(
        architecture="encoder", activation=activation, norm_order="post", embedding_norm=True, num_token_types=2
    ).train()
    ids, lengths = torch.tensor([[4, 5, 6]]), torch.tensor([3])
    model.encode(ids, lengths, torch.tensor([[0, 0, 1]]))[..., 3].sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all()] == []


def test_the_embedding_is_the_norm_of_token_position_and_type() -> None:
    model = make_model(architecture="encoder", embedding_norm=True, num_token_types=2, scale_embeddings=False)
    ids, types, embedding = torch.tensor([[4, 5, 6]]), torch.tensor([[0, 1, 1]]), model.embedding
    total = embedding.token(ids) + embedding.position[:3] + embedding.token_type[types]
    norm = embedding.norm.state_dict()
    wanted = nn.functional.layer_norm(total, total.shape[-1:], norm["weight"], norm["bias"])
    torch.testing.assert_close(embedding(ids, torch.arange(3)[None], types), wanted)
    zeros = torch.zeros_like(types)
    torch.testing.assert_close(
        model.encode(ids, torch.tensor([3])), model.encode(ids, torch.tensor([3]), zeros), rtol=0, atol=0
    )
    with pytest.raises(ValueError, match="token types are given to a model that has none"):
        make_model(architecture="encoder").encode(ids, torch.tensor([3]), zeros)


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh", "silu"])
def test_each_activation_is_its_definition(activation: str) -> None:
    x = torch.linspace(-3, 3, 13)
    wanted = {
        "relu": x.clamp(min=0),
        "gelu": x * 0.5 * (1 + torch.erf(x / math.sqrt(2))),
        "gelu_tanh": 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
        "silu": x / (1 + torch.exp(-x)),
    }
    torch.testing.assert_close(ACTIVATIONS[activation]()(x), wanted[activation])


def test_each_architecture_refuses_what_it_has_not() -> None:
    ids, lengths = torch.tensor([[4, 5]]), torch.tensor([2])
    with pytest.raises(ValueError, match="'encoder' has no decoder: call encode"):
        make_model(architecture="encoder")(ids)
    with pytest.raises(ValueError, match="'decoder' has no encoder"):
        make_model(architecture="decoder").encode(ids, lengths)
    with pytest.raises(ValueError, match="'decoder' takes no source"):
        make_model(architecture="decoder")(ids, ids, lengths)
    model = make_model()
    with pytest.raises(ValueError, match="'encoder_decoder' needs a source"):
        model(ids)
    with pytest.raises(ValueError, match="'encoder_decoder' needs a source"):
        model.decode(ids, torch.tensor([0]), model.empty_cache(1, 4))


def test_sinusoids_are_those_of_the_paper() -> None:
    table = sinusoids(50, 8)
    for position in (0, 1, 7, 49):
        for index in range(4):
            angle = position / 10_000 ** (2 * index / 8)
            assert table[position, 2 * index].item() == pytest.approx(math.sin(angle), abs=1e-5)
            assert table[position, 2 * index + 1].item() == pytest.approx(math.cos(angle), abs=1e-5)


def test_sinusoids_are_in_no_checkpoint() -> None:
    names = [name for name in make_model().state_dict() if "position" in name]
    assert names == []
    assert "embedding.position" in make_model(positions="learned").state_dict()


@torch.inference_mode()
def test_a_fused_projection_equals_three_separate_ones() -> None:
    torch.manual_seed(0)
    fused = SelfAttention(make_config(), is_causal=False).eval()
    library = nn.MultiheadAttention(16, 2, batch_first=True).eval()
    library.in_proj_weight.copy_(fused.query_key_value.weight)
    library.in_proj_bias.copy_(fused.query_key_value.bias)
    library.out_proj.load_state_dict(fused.output.state_dict())
    query, key, value = (nn.Linear(16, 16) for _ in range(3))
    for index, linear in enumerate((query, key, value)):
        linear.weight.copy_(fused.query_key_value.weight.chunk(3)[index])
        linear.bias.copy_(fused.query_key_value.bias.chunk(3)[index])
    states = torch.randn(2, 5, 16)
    parts = fused.query_key_value(states).chunk(3, dim=-1)
    for part, linear in zip(parts, (query, key, value), strict=True):
        torch.testing.assert_close(part, linear(states))
    wanted, _ = library(states, states, states, need_weights=False)
    torch.testing.assert_close(fused(states, Place(None, None), None), wanted)


@torch.inference_mode()
def test_a_layer_equals_pytorchs_own() -> None:
    for norm_order in ("pre", "post"):
        layer = make_model(architecture="encoder", norm_order=norm_order, activation="gelu").encoder_layers[0]
        library = nn.TransformerEncoderLayer(
            16, 2, 24, activation="gelu", batch_first=True, norm_first=norm_order == "pre"
        )
        attention = layer.self_attention
        library.self_attn.in_proj_weight.copy_(attention.query_key_value.weight)
        library.self_attn.in_proj_bias.copy_(attention.query_key_value.bias)
        library.self_attn.out_proj.load_state_dict(attention.output.state_dict())
        library.linear1.load_state_dict(layer.feed_forward.expand.state_dict())
        library.linear2.load_state_dict(layer.feed_forward.contract.state_dict())
        library.norm1.load_state_dict(layer.self_attention_residual.norm.state_dict())
        library.norm2.load_state_dict(layer.feed_forward_residual.norm.state_dict())
        states = torch.randn(2, 5, 16)
        hidden = torch.tensor([[False] * 5, [False, False, False, True, True]])
        library.train()  # the plain path; its fast one leaves padding out
        for dropout in (module for module in library.modules() if isinstance(module, nn.Dropout)):
            dropout.p = 0.0
        library.self_attn.dropout = 0.0
        wanted = library(states, src_key_padding_mask=hidden)
        result = layer(states, Place(None, None), torch.tensor([5, 3]))
        torch.testing.assert_close(result[0], wanted[0], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(result[1, :3], wanted[1, :3], atol=1e-5, rtol=1e-4)
