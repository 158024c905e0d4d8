"""Whether the CUDA provider can run the attention of a graph as flash attention, which never writes the scores down.

Dao et al. 2022, https://arxiv.org/abs/2205.14135. ONNX Runtime takes it for float16 and bfloat16, heads of up to 256
numbers, no mask and no scores asked for; causality and the lengths of rows are arguments of the kernel. Attention with
a bias takes the memory-efficient kernel instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx

MAX_HEAD_SIZE = 256
TYPES = frozenset({onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16})

_MASK, _PAST_KEY, _PAST_VALUE = 3, 4, 5


def faults(path: Path, head_size: int) -> list[str]:
    """What keeps attention in the graph at `path`, with heads of `head_size`, from being flash attention."""
    model = onnx.shape_inference.infer_shapes(onnx.load(path, load_external_data=False))
    values = (*model.graph.input, *model.graph.value_info, *model.graph.output)
    types = {value.name: value.type.tensor_type.elem_type for value in values}
    return [
        f"{path.name}: {node.name} {fault}"
        for node in model.graph.node
        if node.op_type == "Attention"
        for fault in _faults(node, types.get(node.input[1], 0), head_size)
    ]


def _faults(node: onnx.NodeProto, dtype: int, head_size: int) -> Iterator[str]:
    attributes = {attribute.name: attribute for attribute in node.attribute}
    given = [place for place, name in enumerate(node.input) if name]
    if dtype not in TYPES:
        yield f"computes in {onnx.TensorProto.DataType.Name(dtype)}, flash attention in float16 or bfloat16"
    if head_size > MAX_HEAD_SIZE:
        yield f"has heads of {head_size} numbers, flash attention up to {MAX_HEAD_SIZE}"
    if _MASK in given:
        yield "has a mask or a bias"
    if _PAST_KEY in given or _PAST_VALUE in given:
        yield "takes past keys beside its own cache"
    if any(node.output[1:]):
        yield "gives more than the result"
    if "softcap" in attributes and attributes["softcap"].f:
        yield "caps its scores"
