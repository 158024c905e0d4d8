import pytest
import torch
from torch.nn.functional import cross_entropy

from model.training.objectives.base import smoothed_cross_entropy


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_value_and_gradient_are_pytorchs(smoothing: float) -> None:
    torch.manual_seed(0)
    values, labels = torch.randn(7, 11, dtype=torch.float64) * 3, torch.randint(0, 11, (7,))
    expected = values.clone().requires_grad_()
    wanted = cross_entropy(expected, labels, reduction="sum", label_smoothing=smoothing)
    (wanted * 0.3).backward()
    logits = values.clone().requires_grad_()
    loss = smoothed_cross_entropy(logits * 1.0, labels, smoothing)  # its input is used up, a leaf's must not be
    torch.testing.assert_close(loss, wanted)
    (loss * 0.3).backward()
    torch.testing.assert_close(logits.grad, expected.grad)


def test_large_logits_do_not_overflow() -> None:
    logits = torch.tensor([[1000.0, 0.0, -1000.0]]).requires_grad_()
    loss = smoothed_cross_entropy(logits * 1.0, torch.tensor([0]), 0.0)
    loss.backward()
    assert loss.item() == 0.0
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
