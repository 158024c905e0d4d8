"""Run the graphs of a bundle with ONNX Runtime as the server does: caches bound in place, one call a step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from export.manifest import GraphSpec, TensorSpec
from export.processor import int8_options

Array = NDArray[Any]

SLOW_FUSIONS = ["SkipLayerNormFusion"]
"""Rewritings that ONNX Runtime's CPU kernels lose by: the fused sum and norm takes four times as long as the two
(docs/decisions/0042-encoder-int8.md)."""

NEW_PREFIX = "new_"
"""An output `new_X` is the input `X` written in place: both are bound to one buffer."""


class GraphSession:
    """One graph of a bundle on the CPU, one thread."""

    def __init__(self, path: Path, spec: GraphSpec) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3  # errors; warnings name kernels that a type lacks, which is no fault here
        for name, value in int8_options().items():
            options.add_session_config_entry(name, value)
        self.spec = spec
        self._reads_rows_alone = any(tensor.is_by_head for tensor in spec.inputs)
        self._session = ort.InferenceSession(
            path, options, providers=["CPUExecutionProvider"], disabled_optimizers=SLOW_FUSIONS
        )

    def tensor_specs(self) -> tuple[dict[str, TensorSpec], dict[str, TensorSpec]]:
        """Inputs and outputs as the ONNX file declares them."""
        return (
            {argument.name: _tensor_spec(argument) for argument in self._session.get_inputs()},
            {argument.name: _tensor_spec(argument) for argument in self._session.get_outputs()},
        )

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs for `inputs`, by name. Arrays of caches are written in place, and are not among the outputs."""
        if self._reads_rows_alone and min(inputs["input_ids"].shape) > 1:
            return self._run_rows(inputs)
        return self._run(inputs)

    def _run_rows(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Row by row, because GroupQueryAttention reads several tokens of one row alone."""
        num_rows, num_new = inputs["input_ids"].shape
        rows, reads = [], inputs["read_indices"]
        for row in range(num_rows):
            of_row = {
                name: array if name == "num_candidates" else array[row : row + 1] for name, array in inputs.items()
            }
            of_row["read_indices"] = reads[reads // num_new == row] - row * num_new
            rows.append(self._run(of_row))
        return {name: np.concatenate([found[name] for found in rows]) for name in rows[0]}

    def _run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        binding = self._session.io_binding()
        values = {name: ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array)) for name, array in inputs.items()}
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        names = [spec.name for spec in self.spec.outputs]
        for name in names:
            if name.startswith(NEW_PREFIX):
                binding.bind_ortvalue_output(name, values[name.removeprefix(NEW_PREFIX)])
            else:
                binding.bind_output(name)
        self._session.run_with_iobinding(binding)
        results = dict(zip(names, binding.get_outputs(), strict=True))
        for name in names:
            if name.startswith(NEW_PREFIX):
                inputs[name.removeprefix(NEW_PREFIX)][...] = results.pop(name).numpy()
        return {name: value.numpy() for name, value in results.items()}


def _tensor_spec(argument: Any) -> TensorSpec:
    dtypes = {"tensor(int64)": "int64", "tensor(float)": "float32", "tensor(float16)": "float16"}
    return TensorSpec.model_validate(
        {"name": argument.name, "dtype": dtypes.get(argument.type, argument.type), "shape": tuple(argument.shape)}
    )
