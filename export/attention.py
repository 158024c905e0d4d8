"""The graph that shows attention: every layer's maps, and what each key's value weighs, in float32.

It reads the weights of the graphs that serve answers. See docs/decisions/0050-attention-graph.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass
from torch import Tensor, nn

from export.graphs import GraphDefinition
from export.manifest import TensorSpec
from model.attention_maps import AttentionMap, decoder_maps, encoder_maps
from model.transformer import Transformer

NAME = "attention"


class AttentionGraph(nn.Module):
    """Token ids to maps (B,H,Q,K) and value norms (B,H,K): those of the encoder, the decoder, then across."""

    def __init__(self, model: Transformer, input_names: Sequence[str]) -> None:
        super().__init__()
        self.model, self.input_names = model, tuple(input_names)

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        named = dict(zip(self.input_names, tensors, strict=True))
        maps: list[AttentionMap] = []
        memory = lengths = None
        if "input_ids" in named:
            lengths = named["lengths"]
            memory, encoder = encoder_maps(self.model, named["input_ids"], lengths, named.get("token_type_ids"))
            maps += encoder
        if "target_ids" in named:
            decoder, cross = decoder_maps(self.model, named["target_ids"], memory, lengths)
            maps += [*decoder, *cross]
        return tuple(tensor for layer in maps for tensor in layer)


def attention_definition(model: Transformer) -> GraphDefinition:
    """The attention graph of `model`, whose weights are in float32."""
    config = model.config
    inputs, outputs = list[TensorSpec](), list[TensorSpec]()
    if config.num_encoder_layers:
        inputs += [_ids("input_ids", "batch", "source"), _ids("lengths", "batch")]
        if config.num_token_types > 1:
            inputs.append(_ids("token_type_ids", "batch", "source"))
        outputs += _outputs("encoder", config.num_encoder_layers, config.num_heads, "source", "source")
    if config.num_decoder_layers:
        inputs.append(_ids("target_ids", "batch", "target"))
        outputs += _outputs("decoder", config.num_decoder_layers, config.num_heads, "target", "target")
    if config.architecture == "encoder_decoder":
        outputs += _outputs("cross", config.num_decoder_layers, config.num_heads, "target", "source")
    module = AttentionGraph(model, [spec.name for spec in inputs])
    return GraphDefinition(NAME, module, tuple(inputs), tuple(outputs))


def fold_transposes(model: ir.Model) -> None:
    """Transpose weights now, in place, where the tracer left that to the graph, as it does where a weight has two uses.

    The other graphs hold them transposed, so they would stand in the weights file twice.
    """
    graph = model.graph
    for node in list(graph):
        weight = node.inputs[0] if node.op_type == "Transpose" else None
        if weight is None or weight.const_value is None or len(weight.const_value.shape) != 2:
            continue
        result = node.outputs[0]
        array = weight.const_value.numpy().T.copy()
        tensor = ir.tensor(array, name=result.name)
        folded = ir.Value(
            name=result.name, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype), const_value=tensor
        )
        ir.convenience.replace_all_uses_with(result, folded)
        graph.remove(node, safe=True)
        graph.initializers.add(folded)
    RemoveUnusedNodesPass()(model)


def _ids(name: str, *shape: str) -> TensorSpec:
    return TensorSpec(name=name, dtype="int64", shape=shape)


def _outputs(kind: str, num_layers: int, num_heads: int, queries: str, keys: str) -> list[TensorSpec]:
    return [
        TensorSpec(name=f"{kind}_{name}.{layer}", dtype="float32", shape=shape)
        for layer in range(num_layers)
        for name, shape in (
            ("attentions", ("batch", num_heads, queries, keys)),
            ("value_norms", ("batch", num_heads, keys)),
        )
    ]
