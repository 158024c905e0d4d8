import pytest
import torch

from model.pooling import Pooling, pool


@pytest.mark.parametrize("pooling", ["cls", "mean", "last_token"])
def test_padding_is_not_pooled(pooling: Pooling) -> None:
    states = torch.arange(24.0).reshape(2, 4, 3)
    states[0, 2:] = torch.tensor(1e9)
    wanted = {
        "cls": [[0.0, 1, 2], [12, 13, 14]],
        "mean": [[1.5, 2.5, 3.5], [16.5, 17.5, 18.5]],
        "last_token": [[3.0, 4, 5], [21, 22, 23]],
    }
    torch.testing.assert_close(pool(states, torch.tensor([2, 4]), pooling), torch.tensor(wanted[pooling]))
