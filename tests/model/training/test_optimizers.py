import math

import pytest
import torch
from torch import nn

from model.training.config import OptimizerConfig
from model.training.optimizers import Muon, build_optimizers, orthogonalise, rate, set_rate
from tests.model.samples import make_model


@pytest.mark.parametrize("shape", [(16, 16), (8, 32), (32, 8)])
def test_orthogonalise_brings_singular_values_near_one_and_keeps_directions(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    left, _, right = torch.linalg.svd(torch.randn(shape), full_matrices=False)
    matrix = left @ torch.diag(torch.linspace(0.2, 3.0, min(shape))) @ right
    result = orthogonalise(matrix)
    values = torch.linalg.svdvals(result)
    assert 0.6 < values.min() < values.max() < 1.3
    middle = left.T @ result @ right.T  # diagonal where the singular vectors are the same
    torch.testing.assert_close(middle, torch.diag(middle.diagonal()), atol=1e-4, rtol=0)


def test_a_fused_matrix_moves_as_its_parts_would() -> None:
    torch.manual_seed(0)
    values, gradients = torch.randn(3, 6, 8), torch.randn(4, 3, 6, 8)
    fused = nn.Parameter(values.flatten(0, 1).clone())
    parts = [nn.Parameter(value.clone()) for value in values]
    together, alone = Muon([{"params": [fused], "parts": 3}]), Muon([{"params": parts}])
    for gradient in gradients:
        fused.grad = gradient.flatten(0, 1)
        for part, own in zip(parts, gradient, strict=True):
            part.grad = own
        together.step()
        alone.step()
    torch.testing.assert_close(fused.detach(), torch.cat([part.detach() for part in parts]))
    assert not torch.allclose(fused.detach(), values.flatten(0, 1), atol=0.01)


def test_muon_takes_grouped_queries_keys_and_values_apart_by_their_rows() -> None:
    model = make_model(architecture="decoder", num_heads=4, num_kv_heads=2)
    fused = [layer.self_attention.query_key_value.weight for layer in model.decoder_layers]
    _, muon = build_optimizers(model, OptimizerConfig(kind="muon", learning_rate=0.003, matrix_learning_rate=0.02))
    by_parts = {group["parts"]: group["params"] for group in muon.param_groups}
    assert [id(matrix) for matrix in by_parts[16, 8, 8]] == [id(matrix) for matrix in fused]
    together = nn.Parameter(torch.randn(32, 16))
    alone = [nn.Parameter(block.clone()) for block in together.detach().split([16, 8, 8])]
    together.grad = torch.randn(32, 16)
    for part, gradient in zip(alone, together.grad.split([16, 8, 8]), strict=True):
        part.grad = gradient.clone()
    Muon([{"params": [together], "parts": (16, 8, 8)}]).step()
    Muon([{"params": alone}]).step()
    torch.testing.assert_close(together.detach(), torch.cat([part.detach() for part in alone]))


def test_muon_steers_the_matrices_of_the_layers_and_adam_the_rest() -> None:
    model = make_model(tied_embeddings=False)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    adam, muon = build_optimizers(model, OptimizerConfig(kind="muon", learning_rate=0.003, matrix_learning_rate=0.02))
    by_parts = {group["parts"]: {names[id(p)] for p in group["params"]} for group in muon.param_groups}
    assert by_parts[3] == {name for name in names.values() if name.endswith("query_key_value.weight")}
    assert by_parts[2] == {name for name in names.values() if name.endswith("cross_attention.key_value.weight")}
    steered = set.union(*by_parts.values())
    assert steered == {
        name for name in names.values() if "_layers." in name and name.endswith("weight") and "norm" not in name
    }
    rest = {names[id(p)] for group in adam.param_groups for p in group["params"]}
    assert rest | steered == set(names.values())
    assert not rest & steered
    assert {"embedding.token.weight", "projection.weight", "final_bias"} <= rest
    set_rate([adam, muon], 0.5)
    assert {group["lr"] for group in adam.param_groups} == {0.0015}
    assert {group["lr"] for group in muon.param_groups} == {0.01}
    assert len(build_optimizers(model, OptimizerConfig(kind="adam"))) == 1


def config(schedule: str, warmup_steps: int = 10, cooldown_steps: int = 0) -> OptimizerConfig:
    return OptimizerConfig(schedule=schedule, warmup_steps=warmup_steps, cooldown_steps=cooldown_steps)  # type: ignore[arg-type]


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "cosine", "constant"])
def test_warm_up_is_linear_and_ends_at_the_peak(schedule: str) -> None:
    shares = [rate(step, config(schedule), 100) for step in range(10)]
    assert shares == pytest.approx([(step + 1) / 10 for step in range(10)])


def test_schedules_are_their_formulas() -> None:
    assert rate(39, config("inverse_sqrt"), 100) == pytest.approx(math.sqrt(10 / 40))
    assert rate(54, config("cosine"), 100) == pytest.approx(0.5)
    assert rate(99, config("cosine"), 100) == pytest.approx(0.0)
    assert rate(99, config("constant"), 100) == 1.0
    assert rate(0, config("inverse_sqrt", warmup_steps=0), 100) == 1.0


def test_the_last_steps_cool_down_to_zero() -> None:
    shares = [rate(step, config("constant", cooldown_steps=4), 20) for step in range(10, 20)]
    assert shares == pytest.approx([1.0] * 7 + [0.75, 0.5, 0.25])
    assert rate(20, config("constant", cooldown_steps=4), 20) == 0.0
