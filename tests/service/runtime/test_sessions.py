"""What is bound to a session on a CUDA device, seen through a session that computes nothing."""

from __future__ import annotations

import ctypes
import itertools
import random
import weakref
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from export.bundle import Bundle
from service.runtime import decoder
from service.runtime.call import Shape
from service.runtime.decoder import OnnxDecoderBackend
from service.runtime.graphs import open_session
from service.runtime.table import OnnxTable
from tests.service.runtime.blocks import HostCudaMemory


class Bound(NamedTuple):
    device: str
    shape: tuple[int, ...]
    pointer: int


class Binding:
    def __init__(self) -> None:
        self.inputs: dict[str, Bound] = {}
        self.outputs: dict[str, Bound] = {}

    def clear_binding_inputs(self) -> None:
        self.inputs.clear()

    def clear_binding_outputs(self) -> None:
        self.outputs.clear()

    def bind_input(self, name: str, device: str, device_id: int, dtype: Any, shape: Any, pointer: int) -> None:
        self.inputs[name] = Bound(device, tuple(shape), pointer)

    def bind_output(self, name: str, device: str, device_id: int, dtype: Any, shape: Any, pointer: int) -> None:
        self.outputs[name] = Bound(device, tuple(shape), pointer)


class Session:
    def __init__(self, memory: HostCudaMemory) -> None:
        self._memory = memory
        self.runs: list[Binding] = []

    def io_binding(self) -> Binding:
        return Binding()

    def run_with_iobinding(self, binding: Binding) -> None:
        self._memory.cuda.calls.append("run")
        self.runs.append(binding)


class Device(NamedTuple):
    table: OnnxTable
    memory: HostCudaMemory
    encoder: Session
    decoder: Session


@pytest.fixture
def device(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> Device:
    memory = HostCudaMemory("cuda")
    sessions = {name: Session(memory) for name in ("encoder", "decoder")}

    def open_fake(path: Path, device: str, num_threads: int, **_: object) -> Session:
        assert device == "cuda"
        return sessions["encoder" if "encoder" in path.name else "decoder"]

    monkeypatch.setattr(decoder, "open_session", open_fake)
    table = OnnxDecoderBackend(bundle, "fp32", "cuda", memory=memory).new_table(16, 2)
    return Device(table, memory, sessions["encoder"], sessions["decoder"])


def encode(table: OnnxTable, num_slots: int, length: int) -> None:
    table.encode(np.full((num_slots, length), 3), np.full(num_slots, length), range(num_slots))


def step(table: OnnxTable, num_rows: int, position: int) -> None:
    ids, indices = np.full((num_rows, 1), 5), np.full(num_rows, position)
    table.advance(0, ids, indices, np.arange(num_rows), 4, wants_logits=False)


def test_the_encoder_writes_to_the_device(device: Device, bundle: Bundle) -> None:
    encode(device.table, 3, 7)
    binding = device.encoder.runs[0]
    specs = bundle.graph("fp32", "encoder")
    assert set(binding.inputs) == {spec.name for spec in specs.inputs}
    assert set(binding.outputs) == {spec.name for spec in specs.outputs}
    assert {bound.device for bound in binding.inputs.values()} == {"cpu"}
    assert {(bound.device, bound.shape) for bound in binding.outputs.values()} == {("cuda", (3, 7, 32))}
    pointers = sorted(bound.pointer for bound in binding.outputs.values())
    assert {second - first for first, second in itertools.pairwise(pointers)} == {3 * 7 * 32 * 4}


def test_caches_stay_on_the_device_and_are_written_in_place(device: Device, bundle: Bundle) -> None:
    encode(device.table, 3, 7)
    step(device.table, 6, 0)
    binding = device.decoder.runs[0]
    specs = bundle.graph("fp32", "decoder")
    assert set(binding.inputs) == {spec.name for spec in specs.inputs}
    on_host = {name for name, bound in (binding.inputs | binding.outputs).items() if bound.device == "cpu"}
    assert on_host == {"num_candidates"}  # the size of a result
    in_place = {name for name in binding.inputs | binding.outputs if "_cache" in name or "cross_" in name}
    assert in_place == {
        f"{prefix}{part}{suffix}.{layer}"
        for layer in range(2)
        for part in ("key", "value")
        for prefix, suffix in (("", "_cache"), ("new_", "_cache"), ("cross_", ""))
    }
    for name, bound in binding.outputs.items():
        if name.startswith("new_"):
            assert bound == binding.inputs[name.removeprefix("new_")]
    assert set(binding.outputs) - in_place == {
        "candidate_ids",
        "candidate_log_probs",
    }  # the logits stay where they are
    assert binding.inputs["cross_key.0"].shape[0] == 3
    assert binding.inputs["key_cache.0"].shape[0] == 6


def test_the_cuda_library_is_asked_for_after_a_session_has_loaded_it(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    def memory_of(device: str) -> HostCudaMemory:
        order.append(device)
        return HostCudaMemory(device)

    monkeypatch.setattr(decoder, "open_session", lambda *_, **__: order.append("session"))
    monkeypatch.setattr(decoder, "memory_of", memory_of)
    OnnxDecoderBackend(bundle, "fp32", "cuda")
    assert order == ["session", "session", "cuda"]


def test_more_rows_than_a_block_has_are_not_bound(device: Device) -> None:
    backend_graphs, memory = device.table._graphs, device.memory
    cache, cross = (memory.allocate((4, rows, 8, 32), np.dtype(np.float32)) for rows in (8, 4))
    shape = Shape(0, 8, 1, 8, 1, False, cache, 4, cross)
    backend_graphs.bind_rows(Binding(), shape)
    with pytest.raises(IndexError, match="rows 0 to 8 do not fit a block of 8"):
        backend_graphs.bind_rows(Binding(), shape._replace(num_rows=9))
    with pytest.raises(IndexError, match="sources 0 to 4 do not fit a block of 4"):
        backend_graphs.bind_rows(Binding(), shape._replace(num_slots=5))


def test_a_step_is_sent_by_one_copy_and_read_by_one(device: Device) -> None:
    encode(device.table, 1, 4)
    step(device.table, 2, 0)
    binding = device.decoder.runs[0]
    before = dict(binding.inputs)
    device.memory.cuda.calls.clear()
    step(device.table, 2, 1)
    assert device.memory.cuda.calls == ["upload", "synchronize", "run", "download"]
    assert binding.inputs == before  # at the same addresses
    sent = np.ctypeslib.as_array((ctypes.c_int64 * 2).from_address(binding.inputs["write_indices"].pointer))
    assert sent.tolist() == [1, 1]


def test_copies_are_waited_for_before_a_session_runs(device: Device) -> None:
    chance = random.Random(0)
    for number in range(30):
        encode(device.table, chance.randint(1, 8), chance.choice([3, 80]))
        step(device.table, 4, number)
        device.table.copy_rows([(0, 1), (2, 3)], number + 1)
    calls = device.memory.cuda.calls
    assert calls.count("run") == 60
    for number, call in enumerate(calls):
        if call == "run":
            assert calls[number - 1] == "synchronize"


def test_what_is_bound_is_where_the_blocks_are(device: Device) -> None:
    """Also when blocks come and go so fast that one has the id, or the address, of another."""
    chance = random.Random(1)
    table = device.table
    for number in range(90):
        encode(table, chance.randint(1, 8), chance.choice([3, 40, 90]))
        if chance.random() < 0.5:
            encode(table, 1, 90)
        encode(table, 1, 3)
        step(table, 2, number)
        binding = device.decoder.runs[-1]
        assert table.cache is not None
        assert table.cross is not None
        assert binding.inputs["value_cache.1"].pointer == table.cache.pointer(3)
        assert binding.inputs["cross_value.1"].pointer == table.cross.pointer(3)
        assert binding.inputs["cross_value.1"].shape == (1, *table.cross.shape[2:])
        device.memory.values = device.memory.values[-1:]  # what numpy frees, it gives out again


def test_a_block_lives_for_as_long_as_it_is_bound(device: Device) -> None:
    """Else a later one could take its id, and so pass for it."""
    table = device.table
    encode(table, 1, 3)
    step(table, 2, 0)
    device.memory.values.clear()
    assert table.cross is not None
    bound = weakref.ref(table.cross)
    encode(table, 1, 90)
    assert table.cross is not bound()
    assert bound() is not None


class SessionFactory:
    """In the place of `onnxruntime.InferenceSession`."""

    def __init__(self, started: list[str]) -> None:
        self.started = started

    def __call__(self, path: str, options: Any, providers: list[Any], disabled_optimizers: list[str]) -> SessionFactory:
        self.options, self.providers, self.disabled_optimizers = options, providers, disabled_optimizers
        return self

    def get_providers(self) -> list[str]:
        return self.started


def test_a_session_on_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    factory = SessionFactory(["CPUExecutionProvider"])
    monkeypatch.setattr("onnxruntime.InferenceSession", factory)
    open_session(Path("decoder.onnx"), "cpu", 3)
    assert factory.providers == ["CPUExecutionProvider"]
    assert factory.options.intra_op_num_threads == 3
    assert factory.options.get_session_config_entry("session.force_spinning_stop") == "1"
    assert factory.disabled_optimizers == ["SkipLayerNormFusion"]
    assert factory.options.enable_mem_pattern
    open_session(Path("encoder.onnx"), "cpu", 3, repeats_shapes=False)
    assert not factory.options.enable_mem_pattern


@pytest.fixture
def preloads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows when the libraries of the gpu extra are loaded, which are not there on every machine."""
    calls: list[str] = []
    monkeypatch.setattr("onnxruntime.preload_dlls", lambda: calls.append("preload"))
    return calls


def test_a_session_on_cuda(monkeypatch: pytest.MonkeyPatch, preloads: list[str]) -> None:
    factory = SessionFactory(["CUDAExecutionProvider", "CPUExecutionProvider"])
    monkeypatch.setattr("onnxruntime.InferenceSession", factory)
    open_session(Path("decoder.onnx"), "cuda", 1)
    assert preloads
    assert [name if isinstance(name, str) else name[0] for name in factory.providers] == factory.started
    assert factory.providers[0][1]["arena_extend_strategy"] == "kSameAsRequested"
    assert factory.disabled_optimizers == []


@pytest.mark.usefixtures("preloads")
def test_cuda_that_does_not_start_is_no_reason_to_be_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxruntime.InferenceSession", SessionFactory(["CPUExecutionProvider"]))
    with pytest.raises(RuntimeError, match="could not start its CUDA provider"):
        open_session(Path("decoder.onnx"), "cuda", 1)
