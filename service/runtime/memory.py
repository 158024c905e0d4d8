"""Memory for caches: blocks of (layers, rows, capacity, width), in host memory or on a CUDA device.

One block holds all layers, at a fixed distance from each other, so a row is copied in all of them by one call.
"""

from __future__ import annotations

import ctypes
import math
import os
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


class Block(Protocol):
    """(layers, rows, capacity, width) numbers; a graph sees a layer as (rows, capacity, width) through its pointer."""

    shape: tuple[int, int, int, int]
    num_numbers: int
    """How many numbers the memory holds: those of the shape, or more where the block is a view."""

    def pointer(self, layer: int, row: int = 0) -> int:
        """The address of a row of one layer."""

    def copy_row(self, row: int, other: Block, other_row: int, length: int) -> None:
        """Copy the first `length` positions of `other_row` of `other`, in every layer, to `row` here."""

    def copy_rows(self, other: Block, num_rows: int, length: int) -> None:
        """Copy the first `length` positions of the first `num_rows` rows of `other`, in every layer."""

    def view(self, shape: tuple[int, int, int, int]) -> Block:
        """The same memory with another shape, of no more than `num_numbers`."""

    def widen(self, capacity: int, num_rows: int) -> Block | None:
        """This memory with more positions a row and its first `num_rows` rows as they were; this block is then void.

        None where the memory does not hold as much, or its rows cannot be moved within it.
        """


class Mirror(Protocol):
    """A buffer on the host and one of the same size on the device of a graph, at a fixed address."""

    host: NDArray[np.uint8]
    address: int

    def send(self) -> None:
        """Copy from the host to the device."""

    def receive(self) -> None:
        """Copy from the device to the host."""


class Memory(Protocol):
    """A device that blocks can be taken from. `name` is ONNX Runtime's name for it."""

    name: str

    def allocate(self, shape: tuple[int, int, int, int], dtype: np.dtype[Any]) -> Block:
        """A new block, of zeros: padding that a graph multiplies by a weight of zero must not be a NaN."""

    def mirror(self, num_bytes: int) -> Mirror:
        """A buffer on the host and one on the device."""

    def synchronize(self) -> None:
        """Wait for all copies; a session sees only what was copied before this."""

    def usable_bytes(self) -> int:
        """The memory available to this process, in use or free."""


class HostBlock:
    """A block in the beginning of a flat numpy array."""

    def __init__(self, numbers: np.ndarray[Any, Any], shape: tuple[int, int, int, int]) -> None:
        self.shape = shape
        self.num_numbers = numbers.size
        self.array = numbers[: math.prod(shape)].reshape(shape)
        self._numbers = numbers
        self._address, self._strides = int(numbers.ctypes.data), self.array.strides  # asking numpy takes longer

    def pointer(self, layer: int, row: int = 0) -> int:
        return self._address + layer * self._strides[0] + row * self._strides[1]

    def copy_row(self, row: int, other: Block, other_row: int, length: int) -> None:
        assert isinstance(other, HostBlock)
        self.array[:, row, :length] = other.array[:, other_row, :length]

    def copy_rows(self, other: Block, num_rows: int, length: int) -> None:
        assert isinstance(other, HostBlock)
        self.array[:, :num_rows, :length] = other.array[:, :num_rows, :length]

    def view(self, shape: tuple[int, int, int, int]) -> HostBlock:
        return HostBlock(self._numbers, shape)

    def widen(self, capacity: int, num_rows: int) -> HostBlock | None:
        num_layers, old_rows, old_capacity, width = self.shape
        shape = (num_layers, old_rows, capacity, width)
        if math.prod(shape) > self.num_numbers:
            return None
        wider = self.view(shape)
        # Rows move towards the end, so the last is moved first and none is overwritten before.
        for layer in reversed(range(num_layers)):
            for row in reversed(range(num_rows)):
                wider.array[layer, row, :old_capacity] = self.array[layer, row]
        return wider


class HostMirror:
    """The host's buffer, which the graph reads and writes directly."""

    def __init__(self, num_bytes: int) -> None:
        self.host: NDArray[np.uint8] = np.zeros(num_bytes, np.uint8)
        self.address = int(self.host.ctypes.data)

    def send(self) -> None:
        """Nothing: there is one buffer."""

    def receive(self) -> None:
        """Nothing: there is one buffer."""


class HostMemory:
    """The processor's memory."""

    name = "cpu"

    def allocate(self, shape: tuple[int, int, int, int], dtype: np.dtype[Any]) -> HostBlock:
        return HostBlock(np.zeros(math.prod(shape), dtype), shape)

    def mirror(self, num_bytes: int) -> HostMirror:
        return HostMirror(num_bytes)

    def synchronize(self) -> None:
        """Nothing: numpy copies synchronously."""

    def usable_bytes(self) -> int:
        """The cgroup's limit, at most the memory of the machine."""
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        for path in _CGROUP_LIMITS:
            if path.is_file() and (limit := path.read_text(encoding="ascii").strip()).isdigit():
                return min(total, int(limit))
        return total


class CudaRuntime(Protocol):
    """The functions of CUDA's runtime library that blocks need; copies and clears may still run when they return."""

    def copy_2d(self, target: int, target_pitch: int, source: int, source_pitch: int, width: int, height: int) -> None:
        """Copy `height` runs of `width` bytes between device addresses, each run a pitch further on."""

    def clear(self, target: int, num_bytes: int) -> None:
        """Set device memory to zero bytes."""

    def upload(self, target: int, source: int, num_bytes: int) -> None:
        """Copy from an address of the host to one of the device."""

    def download(self, target: int, source: int, num_bytes: int) -> None:
        """Copy from an address of the device to one of the host; it is there when this returns."""

    def synchronize(self) -> None:
        """Wait for every copy and clear of this thread's default stream."""

    def total_bytes(self) -> int:
        """The memory of the current device."""


class CudaError(RuntimeError):
    """A call of CUDA's runtime library failed."""


class CudaLibrary:
    """`libcudart`, which onnxruntime-gpu has already loaded into the process."""

    _HOST_TO_DEVICE, _DEVICE_TO_HOST, _DEVICE_TO_DEVICE = 1, 2, 3

    def __init__(self, library: ctypes.CDLL | None = None) -> None:
        self._library = library or ctypes.CDLL("libcudart.so.13")
        size, address = ctypes.c_size_t, ctypes.c_void_p
        self._library.cudaMemcpy2D.argtypes = [address, size, address, size, size, size, ctypes.c_int]
        self._library.cudaMemcpy.argtypes = [address, address, size, ctypes.c_int]
        self._library.cudaMemset.argtypes = [address, ctypes.c_int, size]
        self._library.cudaStreamSynchronize.argtypes = [address]
        self._library.cudaGetErrorString.restype = ctypes.c_char_p

    def copy_2d(self, target: int, target_pitch: int, source: int, source_pitch: int, width: int, height: int) -> None:
        self._check(
            self._library.cudaMemcpy2D(
                target, target_pitch, source, source_pitch, width, height, self._DEVICE_TO_DEVICE
            )
        )

    def upload(self, target: int, source: int, num_bytes: int) -> None:
        self._check(self._library.cudaMemcpy(target, source, num_bytes, self._HOST_TO_DEVICE))

    def download(self, target: int, source: int, num_bytes: int) -> None:
        self._check(self._library.cudaMemcpy(target, source, num_bytes, self._DEVICE_TO_HOST))

    def clear(self, target: int, num_bytes: int) -> None:
        self._check(self._library.cudaMemset(target, 0, num_bytes))

    def synchronize(self) -> None:
        self._check(self._library.cudaStreamSynchronize(None))

    def total_bytes(self) -> int:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._check(self._library.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)))
        return total.value

    def _check(self, status: int) -> None:
        if status:
            raise CudaError(f"CUDA error {status}: {self._library.cudaGetErrorString(status).decode()}")


class CudaBlock:
    """A block in device memory: rows are `row_bytes` apart, layers `layer_bytes`, from the address `base`."""

    def __init__(
        self,
        shape: tuple[int, int, int, int],
        itemsize: int,
        value: Any,
        cuda: CudaRuntime,
        num_numbers: int | None = None,
    ) -> None:
        self.shape = shape
        self.num_numbers = math.prod(shape) if num_numbers is None else num_numbers
        self._value = value  # the owner of the memory
        self.base = int(value.data_ptr())
        self._itemsize = itemsize
        self._cuda = cuda
        self._position_bytes = shape[3] * itemsize
        self.row_bytes = shape[2] * self._position_bytes
        self.layer_bytes = shape[1] * self.row_bytes

    def pointer(self, layer: int, row: int = 0) -> int:
        return self.base + layer * self.layer_bytes + row * self.row_bytes

    def copy_row(self, row: int, other: Block, other_row: int, length: int) -> None:
        assert isinstance(other, CudaBlock)
        target, source = self.base + row * self.row_bytes, other.base + other_row * other.row_bytes
        width = length * self._position_bytes
        self._cuda.copy_2d(target, self.layer_bytes, source, other.layer_bytes, width, self.shape[0])

    def copy_rows(self, other: Block, num_rows: int, length: int) -> None:
        assert isinstance(other, CudaBlock)
        width = length * self._position_bytes
        for layer in range(self.shape[0]):
            self._cuda.copy_2d(
                self.pointer(layer), self.row_bytes, other.pointer(layer), other.row_bytes, width, num_rows
            )

    def view(self, shape: tuple[int, int, int, int]) -> CudaBlock:
        return CudaBlock(shape, self._itemsize, self._value, self._cuda, self.num_numbers)

    def widen(self, capacity: int, num_rows: int) -> None:
        """Copies within a device must not overlap."""


class CudaMirror:
    """A buffer of the host, and one of a device."""

    def __init__(self, num_bytes: int, value: Any, cuda: CudaRuntime) -> None:
        self.host: NDArray[np.uint8] = np.zeros(num_bytes, np.uint8)
        self.address = int(value.data_ptr())
        self._value = value  # the owner of the memory
        self._cuda = cuda

    def send(self) -> None:
        self._cuda.upload(self.address, self.host.ctypes.data, self.host.size)

    def receive(self) -> None:
        self._cuda.download(self.host.ctypes.data, self.address, self.host.size)


class CudaMemory:
    """The memory of one CUDA device.

    Copies between device addresses run on the default stream and return before they are done, and ONNX Runtime computes
    on a stream of its own that does not wait for that one: hence `synchronize` before each run.
    """

    name = "cuda"

    def __init__(self, device_id: int = 0, cuda: CudaRuntime | None = None) -> None:
        self._device_id = device_id
        self._cuda = cuda or CudaLibrary()

    def allocate(self, shape: tuple[int, int, int, int], dtype: np.dtype[Any]) -> CudaBlock:
        value = ort.OrtValue.ortvalue_from_shape_and_type(list(shape), dtype.type, "cuda", self._device_id)
        block = CudaBlock(shape, dtype.itemsize, value, self._cuda)
        self._cuda.clear(block.pointer(0), math.prod(shape) * dtype.itemsize)
        return block

    def mirror(self, num_bytes: int) -> CudaMirror:
        value = ort.OrtValue.ortvalue_from_shape_and_type([num_bytes], np.uint8, "cuda", self._device_id)
        self._cuda.clear(int(value.data_ptr()), num_bytes)
        return CudaMirror(num_bytes, value, self._cuda)

    def synchronize(self) -> None:
        self._cuda.synchronize()

    def usable_bytes(self) -> int:
        """The memory of the device."""
        return self._cuda.total_bytes()
