"""The small inputs and outputs of a call: written and read on the host, at fixed addresses.

On the processor the graph reads and writes the host's arrays themselves. On a device the inputs lie in one block,
filled by one copy a call, and the outputs in another, read by one copy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.runtime.memory import Memory, Mirror

_ALIGNMENT = 64


class Spec(NamedTuple):
    """The data type of an array, and the most numbers that it holds."""

    dtype: np.dtype[Any]
    size: int


class StepArrays:
    """Named arrays in one mirror of `memory`, each with a fixed place."""

    def __init__(self, memory: Memory, specs: Mapping[str, Spec]) -> None:
        self._device = memory.name
        self._specs = dict(specs)
        self._offsets: dict[str, int] = {}
        end = 0
        for name, spec in self._specs.items():
            self._offsets[name] = end
            end += -(-spec.size * spec.dtype.itemsize // _ALIGNMENT) * _ALIGNMENT
        self._mirror: Mirror = memory.mirror(end)

    @property
    def address(self) -> int:
        """Where the arrays begin, in the memory that the graph reads."""
        return self._mirror.address

    def array(self, name: str, shape: Sequence[int]) -> NDArray[Any]:
        """The first numbers of an array as the host sees them."""
        spec, start = self._specs[name], self._offsets[name]
        count = math.prod(shape)
        if count > spec.size:
            raise IndexError(f"{name} of the shape {tuple(shape)} does not fit {spec.size} numbers")
        return self._mirror.host[start : start + count * spec.dtype.itemsize].view(spec.dtype).reshape(shape)

    def bind_input(self, binding: Any, name: str, shape: Sequence[int], of: str = "") -> None:
        """Let a graph read the first numbers of an array: of that name, or of the array `of`."""
        spec, offset = self._specs[of or name], self._offsets[of or name]
        binding.bind_input(name, self._device, 0, spec.dtype, tuple(shape), self.address + offset)

    def bind_output(self, binding: Any, name: str, shape: Sequence[int]) -> None:
        """Let a graph write the first numbers of an array."""
        spec = self._specs[name]
        binding.bind_output(name, self._device, 0, spec.dtype, tuple(shape), self.address + self._offsets[name])

    def send(self) -> None:
        """Copy the arrays from the host to the device."""
        self._mirror.send()

    def receive(self) -> None:
        """Copy the arrays from the device to the host."""
        self._mirror.receive()
