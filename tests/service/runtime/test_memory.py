from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from service.runtime.memory import Block, CudaError, CudaLibrary, CudaMemory, HostMemory, Memory
from tests.service.runtime.blocks import HostCuda, HostCudaMemory, HostValue

FLOAT32 = np.dtype(np.float32)


@pytest.fixture(params=["host", "cuda"])
def device(request: pytest.FixtureRequest) -> Memory:
    return HostMemory() if request.param == "host" else HostCudaMemory()


def content(block: Block) -> NDArray[np.float32]:
    """The block's numbers, read through its pointers, as a graph does."""
    layers, *rest = block.shape
    size = int(np.prod(rest))
    parts = [np.frombuffer(ctypes.string_at(block.pointer(layer), 4 * size), FLOAT32) for layer in range(layers)]
    return np.stack(parts).reshape(block.shape)


def filled(device: Memory, shape: tuple[int, int, int, int]) -> Block:
    block = device.allocate(shape, FLOAT32)
    size = int(np.prod(shape[1:]))
    for layer in range(shape[0]):
        numbers = np.arange(layer * size, (layer + 1) * size, dtype=np.float32)
        ctypes.memmove(block.pointer(layer), numbers.ctypes.data, numbers.nbytes)
    return block


def numbers(shape: tuple[int, int, int, int]) -> NDArray[np.float32]:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def test_a_new_block_is_zero(device: Memory) -> None:
    assert (content(device.allocate((2, 3, 4, 5), FLOAT32)) == 0).all()


@pytest.mark.parametrize("length", [1, 3, 4])
def test_copying_a_row_to_a_block_of_another_shape(device: Memory, length: int) -> None:
    source, target = filled(device, (2, 3, 4, 5)), device.allocate((2, 6, 7, 5), FLOAT32)
    target.copy_row(4, source, 2, length)
    expected = np.zeros(target.shape, np.float32)
    expected[:, 4, :length] = numbers(source.shape)[:, 2, :length]
    np.testing.assert_array_equal(content(target), expected)


def test_copying_a_row_within_a_block(device: Memory) -> None:
    block = filled(device, (2, 3, 4, 5))
    block.copy_row(0, block, 2, 3)
    expected = numbers(block.shape)
    expected[:, 0, :3] = expected[:, 2, :3]
    np.testing.assert_array_equal(content(block), expected)


@pytest.mark.parametrize("shape", [(2, 6, 7, 5), (2, 2, 3, 5)], ids=["larger", "smaller"])
def test_copying_rows(device: Memory, shape: tuple[int, int, int, int]) -> None:
    source, target = filled(device, (2, 3, 4, 5)), device.allocate(shape, FLOAT32)
    target.copy_rows(source, 2, 3)
    expected = np.zeros(shape, np.float32)
    expected[:, :2, :3] = numbers(source.shape)[:, :2, :3]
    np.testing.assert_array_equal(content(target), expected)


def test_a_view_is_packed_into_the_beginning(device: Memory) -> None:
    block = filled(device, (2, 3, 4, 5))
    view = block.view((2, 2, 3, 5))
    assert view.pointer(0) == block.pointer(0)
    np.testing.assert_array_equal(content(view), numbers((2, 2, 3, 5)))


def test_cuda_memory_takes_device_memory_from_onnx_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []

    class OrtValue:
        @staticmethod
        def ortvalue_from_shape_and_type(shape: list[int], dtype: Any, device: str, device_id: int) -> HostValue:
            taken.append((shape, dtype, device, device_id))
            return HostValue(tuple(shape), np.dtype(dtype))

    monkeypatch.setattr("onnxruntime.OrtValue", OrtValue)
    cuda = HostCuda()
    device = CudaMemory(1, cuda)
    block = device.allocate((2, 3, 4, 5), np.dtype(np.float16))
    assert device.name == "cuda"
    assert taken == [([2, 3, 4, 5], np.float16, "cuda", 1)]
    assert ctypes.string_at(block.pointer(0), 2 * 120) == bytes(2 * 120)
    assert block.pointer(1) - block.pointer(0) == 2 * 60
    device.synchronize()
    assert cuda.calls == ["clear", "synchronize"]


class Function:
    """A C function of a fake library."""

    def __init__(self, result: Any) -> None:
        self.result = result
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, *arguments: Any) -> Any:
        self.calls.append(arguments)
        return self.result


class Library:
    def __init__(self, status: int) -> None:
        self.cudaMemcpy2D = Function(status)
        self.cudaMemcpy = Function(status)
        self.cudaMemset = Function(status)
        self.cudaStreamSynchronize = Function(status)
        self.cudaGetErrorString = Function(b"an illegal memory access was encountered")


def test_cuda_calls() -> None:
    library = Library(0)
    cuda = CudaLibrary(library)  # type: ignore[arg-type]
    cuda.copy_2d(1, 2, 3, 4, 5, 6)
    cuda.clear(7, 8)
    cuda.upload(1, 2, 3)
    cuda.download(4, 5, 6)
    cuda.synchronize()
    host_to_device, device_to_host, device_to_device = 1, 2, 3
    assert library.cudaMemcpy.calls == [(1, 2, 3, host_to_device), (4, 5, 6, device_to_host)]
    assert library.cudaMemcpy2D.calls == [(1, 2, 3, 4, 5, 6, device_to_device)]
    assert library.cudaMemset.calls == [(7, 0, 8)]
    assert library.cudaStreamSynchronize.calls == [(None,)]


def test_cuda_errors_are_raised() -> None:
    cuda = CudaLibrary(Library(700))  # type: ignore[arg-type]
    calls: list[Callable[[], None]] = [
        partial(cuda.copy_2d, 1, 2, 3, 4, 5, 6),
        partial(cuda.clear, 7, 8),
        partial(cuda.upload, 1, 2, 3),
        partial(cuda.download, 1, 2, 3),
        cuda.synchronize,
    ]
    for call in calls:
        with pytest.raises(CudaError, match="CUDA error 700: an illegal memory access was encountered"):
            call()


@pytest.mark.parametrize("num_rows", [0, 2, 3])
def test_a_block_that_has_room_is_widened_where_it_lies(num_rows: int) -> None:
    numbers = np.arange(2 * 3 * 4 * 2, dtype=np.float32).reshape(2, 3, 4, 2)
    block = HostMemory().allocate((2, 3, 7, 2), np.dtype(np.float32)).view((2, 3, 4, 2))
    block.array[...] = numbers
    wider = block.widen(6, num_rows)
    assert wider is not None
    assert wider.shape == (2, 3, 6, 2)
    assert wider.pointer(0) == block.pointer(0)
    assert wider.num_numbers == block.num_numbers
    np.testing.assert_array_equal(wider.array[:, :num_rows, :4], numbers[:, :num_rows])
    assert wider.widen(8, num_rows) is None
