"""Tiny random models, and their graphs. Biases and norms are drawn too, so that none can be left out unseen."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import onnx_ir as ir
import torch

from export.calibration import activation_ranges
from export.graphs import TORCH_DTYPES, GraphDefinition, graph_definitions
from export.manifest import DType, GraphSpec, PrecisionSpec
from export.quantize import quantize
from export.quantize_blocks import quantize_blocks
from export.trace import trace
from export.weights import StoredWeights, WeightFile, bind_weights
from model.config import ModelConfig
from model.pooling import Pooling
from model.transformer import Transformer

Make = Callable[..., Transformer]


def make_model(seed: int = 0, **changes: Any) -> Transformer:
    torch.manual_seed(seed)
    values: dict[str, Any] = {
        "architecture": "encoder_decoder",
        "vocab_size": 40,
        "d_model": 16,
        "d_ff": 24,
        "num_heads": 2,
        "num_encoder_layers": 1,
        "num_decoder_layers": 1,
        "max_seq_len": 32,
        "final_bias": True,
    }
    model = Transformer(ModelConfig(**values | changes))
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, mean=float("norm.weight" in name), std=0.2)
    return model.eval()


def make_encoder(seed: int = 0, **changes: Any) -> Transformer:
    return make_model(seed, **{"architecture": "encoder", "num_decoder_layers": 0} | changes)


def stored(model: Transformer) -> StoredWeights:
    tensors = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    return StoredWeights(tensors | {name: tensor.numpy() for name, tensor in model.named_buffers()})


def traced(
    make: Make, dtype: DType = "float32", pooling: Pooling = "mean", **changes: Any
) -> list[tuple[GraphDefinition, ir.Model]]:
    """The graphs of `make(**changes)`. Tracing is what takes long, so each is traced once and then copied."""
    graphs = _traced(make, dtype, pooling, tuple(sorted(changes.items())))
    return [(definition, graph.clone()) for definition, graph in graphs]


@cache
def _traced(
    make: Make, dtype: DType, pooling: Pooling, changes: tuple[tuple[str, Any], ...]
) -> list[tuple[GraphDefinition, ir.Model]]:
    model = make(**dict(changes)).to(TORCH_DTYPES[dtype])
    return [(definition, trace(definition)) for definition in graph_definitions(model, dtype, pooling)]


def exported(
    folder: Path, make: Make, precision: str = "fp32", pooling: Pooling = "mean", **changes: Any
) -> tuple[Transformer, PrecisionSpec]:
    """`make(**changes)`, and in `folder` the graphs of an equal one in `precision`."""
    model = make(**changes)
    weights, file, specs = stored(model), WeightFile(folder), {}
    for definition, graph in traced(make, pooling=pooling, **changes):
        if precision == "int4" and definition.name == "decoder":
            quantize_blocks(graph, weights)
        elif precision in ("int8", "int4"):
            quantize(graph, weights, activation_ranges(model))
        bind_weights(graph, weights, file)
        ir.save(graph, folder / f"{definition.name}.onnx")
        specs[definition.name] = GraphSpec(
            file=f"{definition.name}.onnx", inputs=definition.inputs, outputs=definition.outputs
        )
    file.save()
    return model, PrecisionSpec(graphs=specs)
