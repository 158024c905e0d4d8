"""Ranking in blocks against PyTorch's own top-k, and what the rewritten projections leave in the graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
from torch import Tensor, nn

from export.graphs import GraphDefinition
from export.manifest import TensorSpec
from export.ranking import block_width, rank, take
from export.trace import trace


class _Ranking(nn.Module):
    def __init__(self, max_candidates: int) -> None:
        super().__init__()
        self.max_candidates = max_candidates

    def forward(self, logits: Tensor, num_candidates: Tensor) -> tuple[Tensor, Tensor]:
        ids, log_probs = rank(logits, num_candidates, self.max_candidates)
        return ids, log_probs


def session(vocab_size: int, max_candidates: int = 16) -> ort.InferenceSession:
    definition = GraphDefinition(
        "ranking",
        _Ranking(max_candidates),
        (
            TensorSpec(name="logits", dtype="float32", shape=("batch", vocab_size)),
            TensorSpec(name="num_candidates", dtype="int64", shape=(1,)),
        ),
        (
            TensorSpec(name="candidate_ids", dtype="int64", shape=("batch", "candidates")),
            TensorSpec(name="candidate_log_probs", dtype="float32", shape=("batch", "candidates")),
        ),
    )
    graph = ir.to_proto(trace(definition)).SerializeToString()
    return ort.InferenceSession(graph, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("max_candidates", [16, 300])
@pytest.mark.parametrize("vocab_size", [40, 2053, 4000, 5087 * 6, 8000])
def test_blocks_give_what_a_full_ranking_gives(vocab_size: int, max_candidates: int) -> None:
    generator = torch.Generator().manual_seed(vocab_size)
    # No two are equal, because the order of equals is not said.
    logits = torch.stack([torch.randperm(vocab_size, generator=generator) / 2048 for _ in range(5)])
    logits[0, -1] = 50.5
    logits[1, :20] += 40.0  # all the best in one block
    logits[2, :: max(1, vocab_size // 20)] += 40.0  # and in many
    most = min(vocab_size, max_candidates)
    runs = session(vocab_size, most)
    for count in {1, 8, most}:
        ids, log_probs = runs.run(None, {"logits": logits.numpy(), "num_candidates": np.array([count])})
        expected = logits.topk(count).indices
        np.testing.assert_array_equal(ids, expected.numpy())
        np.testing.assert_allclose(log_probs, logits.log_softmax(-1).gather(1, expected).numpy(), atol=2e-5)


def test_the_first_of_equal_logits_is_the_greedy_choice() -> None:
    logits = np.zeros((2, 8000), np.float32)
    logits[1, [130, 70, 7000]] = 1.0
    ids, _ = session(8000).run(None, {"logits": logits, "num_candidates": np.array([1])})
    assert ids.ravel().tolist() == [0, 70]


@pytest.mark.parametrize(
    ("vocab_size", "width"), [(8000, 64), (5000, 50), (50257, 29), (32000, 64), (2053, None), (300, None)]
)
def test_a_block_is_as_wide_as_a_divisor_near_64(vocab_size: int, width: int | None) -> None:
    assert block_width(vocab_size, 16) == width


@pytest.mark.parametrize(("max_candidates", "width"), [(125, 64), (126, 50), (160, 50), (161, 40), (501, None)])
def test_there_are_as_many_blocks_as_candidates(max_candidates: int, width: int | None) -> None:
    assert block_width(8000, max_candidates) == width


def test_take_counts_positions_row_after_row() -> None:
    states = torch.randn(3, 4, 5)
    taken = take(states, torch.tensor([0, 7, 10, 11]))
    torch.testing.assert_close(taken, torch.stack([states[0, 0], states[1, 3], states[2, 2], states[2, 3]]))


def _operators(path: Path) -> list[Any]:
    return list(onnx.load(path, load_external_data=False).graph.node)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_no_query_is_multiplied_by_a_constant(bundle_folder: Path, precision: str) -> None:
    for name in ("encoder", "decoder"):
        attended = [
            node.input[0]
            for node in _operators(bundle_folder / f"{name}.{precision}.onnx")
            if node.op_type == "Attention"
        ]
        makers = {
            output: node for node in _operators(bundle_folder / f"{name}.{precision}.onnx") for output in node.output
        }
        assert attended
        for query in attended:
            maker = makers[query]
            if maker.op_type == "Reshape":  # the beams of a source, or texts out of a flat product
                maker = makers[maker.input[0]]
            assert maker.op_type in {"Add", "Split", "Gemm", "MatMulIntegerToFloat"}, maker.op_type


def test_an_encoder_cuts_no_product(bundle_folder: Path) -> None:
    assert "Split" not in {node.op_type for node in _operators(bundle_folder / "encoder.int8.onnx")}
