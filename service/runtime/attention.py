"""A bundle's attention graph on ONNX Runtime, which shares the weights of the graphs that serve."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort

from export.bundle import Bundle, BundleError
from service.engine.encode.attention import AttentionRequest, Kind, Maps

KINDS: tuple[Kind, ...] = ("encoder", "decoder", "cross")


class OnnxAttentionBackend:
    """See `service.engine.encode.attention_engine.AttentionBackend`. Always runs on the CPU."""

    def __init__(self, bundle: Bundle, num_threads: int = 1) -> None:
        config, spec = bundle.config, bundle.manifest.attention
        if spec is None:
            raise BundleError(f"bundle {bundle.path} has no attention graph: export it again with --attention")
        names = {tensor.name for tensor in spec.inputs}
        self.vocab_size = config.vocab_size
        self.reads_source, self.reads_target = "input_ids" in names, "target_ids" in names
        self._takes_types = "token_type_ids" in names
        self.num_token_types = config.num_token_types if self._takes_types else 0
        self.max_source_tokens = self.max_target_tokens = config.max_seq_len
        self._num_layers = {
            kind: sum(tensor.name.startswith(f"{kind}_attentions.") for tensor in spec.outputs) for kind in KINDS
        }
        self._session = _open(bundle.path / spec.file, num_threads)

    def maps(self, request: AttentionRequest) -> tuple[Maps, Maps | None]:
        wanted = [
            (kind, layer)
            for kind in KINDS
            for layer in range(self._num_layers[kind])
            if request.layers is None or layer in request.layers
        ]
        names = [f"{kind}_attentions.{layer}" for kind, layer in wanted]
        if request.wants_norms:
            names += [f"{kind}_value_norms.{layer}" for kind, layer in wanted]
        found = dict(zip(names, self._session.run(names, self._inputs(request)), strict=True)) if names else {}
        maps: dict[Kind, dict[int, Any]] = {kind: {} for kind, _ in wanted}
        norms: dict[Kind, dict[int, Any]] = {kind: {} for kind, _ in wanted}
        for kind, layer in wanted:
            maps[kind][layer] = found[f"{kind}_attentions.{layer}"][0]  # (H,Q,K)
            if request.wants_norms:
                norms[kind][layer] = maps[kind][layer] * found[f"{kind}_value_norms.{layer}"][0][:, None, :]
        return maps, norms if request.wants_norms else None

    def _inputs(self, request: AttentionRequest) -> dict[str, Any]:
        inputs = {}
        if request.source_ids is not None:
            inputs["input_ids"] = np.array([request.source_ids], dtype=np.int64)
            inputs["lengths"] = np.array([len(request.source_ids)], dtype=np.int64)
            if self._takes_types:
                types = request.token_type_ids or (0,) * len(request.source_ids)
                inputs["token_type_ids"] = np.array([types], dtype=np.int64)
        if request.target_ids is not None:
            inputs["target_ids"] = np.array([request.target_ids], dtype=np.int64)
        return inputs


def _open(path: Any, num_threads: int) -> Any:
    """A session whose weights stay in the memory-mapped file, shared with every process that maps it.

    Folding the casts behind them, or packing them for the matrix kernels, would copy every weight into this session.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = num_threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.enable_cpu_mem_arena = False  # maps are large and rare: their memory is freed after each run
    # The levels beyond rewrite nodes for the processor, and hold their weights in memory of their own.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.add_session_config_entry("session.disable_prepacking", "1")
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return ort.InferenceSession(
        str(path), options, providers=["CPUExecutionProvider"], disabled_optimizers=["ConstantFolding"]
    )
