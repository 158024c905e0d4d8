"""The embedding engine on ONNX Runtime equals PyTorch, and a text has one embedding whatever else is in its batch."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from export.bundle import Bundle, BundleError
from model.pooling import pool
from model.transformer import Transformer
from service.engine.core.arrays import Floats
from service.engine.encode.embedding import EmbeddingRequest, EmbeddingResult
from service.engine.encode.embedding_batches import build_arrays
from service.engine.encode.embedding_engine import EmbeddingEngine
from service.engine.encode.embedding_line import EmbeddingLimits
from service.runtime import encoder as encoder_module
from service.runtime.encoder import OnnxEncoderBackend
from tests.service.runtime.embedding_bundles import MAX_TOKENS, export_encoder, make_encoder

_PARITY = 1e-5
_ALONE = 1e-6


@pytest.fixture(scope="module")
def backend(embedding_bundle: Bundle) -> OnnxEncoderBackend:
    return OnnxEncoderBackend(embedding_bundle, "fp32")


def random_request(chance: random.Random, **fields: Any) -> EmbeddingRequest:
    length = chance.choice([1, 2, MAX_TOKENS - 1, MAX_TOKENS, *range(3, 30)])
    types = tuple(chance.randrange(2) for _ in range(length)) if chance.random() < 0.3 else None
    ids = tuple(chance.randrange(300) for _ in range(length))
    return EmbeddingRequest(ids, fields.get("wants_tokens", chance.random() < 0.3), token_type_ids=types)


def alone(backend: OnnxEncoderBackend, request: EmbeddingRequest) -> Floats:
    values: Floats = backend.encode(*build_arrays([request], backend.pad_id), request.wants_tokens)[0]
    return values


def from_torch(model: Transformer, request: EmbeddingRequest) -> Floats:
    ids, lengths = torch.tensor([request.input_ids]), torch.tensor([request.num_tokens])
    types = torch.tensor([request.token_type_ids or (0,) * request.num_tokens])
    with torch.no_grad():
        states = model.encode(ids, lengths, types)
        values: Floats = (states if request.wants_tokens else pool(states, lengths, "mean"))[0].numpy()
    return values


def assert_equal_alone(
    backend: OnnxEncoderBackend, requests: list[EmbeddingRequest], results: list[EmbeddingResult]
) -> None:
    for request, result in zip(requests, results, strict=True):
        np.testing.assert_allclose(result.values, alone(backend, request), rtol=_ALONE, atol=_ALONE)


@pytest.mark.parametrize("wants_tokens", [False, True])
def test_embeddings_equal_those_of_pytorch(
    backend: OnnxEncoderBackend, encoder: Transformer, wants_tokens: bool
) -> None:
    chance = random.Random(wants_tokens)
    for _ in range(20):
        request = random_request(chance, wants_tokens=wants_tokens)
        np.testing.assert_allclose(alone(backend, request), from_torch(encoder, request), rtol=_PARITY, atol=_PARITY)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 10_000), st.integers(1, 24), st.booleans())
def test_a_text_has_one_embedding_alone_and_in_any_batch(
    backend: OnnxEncoderBackend, seed: int, count: int, wants_tokens: bool
) -> None:
    chance = random.Random(seed)
    requests = [random_request(chance, wants_tokens=wants_tokens) for _ in range(count)]
    values = backend.encode(*build_arrays(requests, backend.pad_id), wants_tokens)
    for request, row in zip(requests, values, strict=True):
        found = row[: request.num_tokens] if wants_tokens else row
        np.testing.assert_allclose(found, alone(backend, request), rtol=_ALONE, atol=_ALONE)


@pytest.mark.parametrize(("num_loops", "max_batch_tokens"), [(1, 1024), (2, MAX_TOKENS), (3, 200)])
def test_64_callers_of_mixed_lengths(backend: OnnxEncoderBackend, num_loops: int, max_batch_tokens: int) -> None:
    chance = random.Random(num_loops)
    calls = [[random_request(chance) for _ in range(chance.randint(1, 4))] for _ in range(64)]
    engine = EmbeddingEngine(backend, EmbeddingLimits(max_batch_tokens=max_batch_tokens), num_loops)
    engine.start()

    async def main() -> list[list[EmbeddingResult]]:
        return await asyncio.gather(*(engine.run(call) for call in calls))

    try:
        for call, results in zip(calls, asyncio.run(main()), strict=True):
            assert_equal_alone(backend, call, results)
    finally:
        engine.close()
    assert engine.stats().steps < sum(map(len, calls))


def test_int8_does_not_let_a_neighbour_change_a_text_much(embedding_bundle: Bundle) -> None:
    backend = OnnxEncoderBackend(embedding_bundle, "int8")
    chance = random.Random(5)
    requests = [random_request(chance, wants_tokens=False) for _ in range(16)]
    values = backend.encode(*build_arrays(requests, backend.pad_id), False)
    for request, row in zip(requests, values, strict=True):
        single = alone(backend, request)
        assert row @ single / (np.linalg.norm(row) * np.linalg.norm(single)) > 0.999


def test_what_the_engine_must_know_of_the_model(backend: OnnxEncoderBackend) -> None:
    assert (backend.width, backend.vocab_size, backend.max_input_tokens) == (32, 300, MAX_TOKENS)
    assert (backend.pad_id, backend.num_token_types) == (0, 2)


def test_token_types_matter(backend: OnnxEncoderBackend) -> None:
    first, second = ((5, 6, 7), (0, 1, 1)), ((5, 6, 7), (0, 0, 0))
    values = [alone(backend, EmbeddingRequest(ids, token_type_ids=types)) for ids, types in (first, second)]
    assert np.abs(values[0] - values[1]).max() > 0.01
    np.testing.assert_array_equal(values[1], alone(backend, EmbeddingRequest((5, 6, 7))))


@pytest.fixture(scope="module")
def plain_bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    model = make_encoder(num_token_types=0, num_encoder_layers=1)
    return export_encoder(model, tmp_path_factory.mktemp("plain") / "plain", pooling="cls", max_input_tokens=20)


def test_a_model_without_token_types(plain_bundle: Bundle) -> None:
    backend = OnnxEncoderBackend(plain_bundle, "fp32")
    assert (backend.num_token_types, backend.max_input_tokens) == (0, 20)
    ids = (5, 6, 7)
    pooled, tokens = alone(backend, EmbeddingRequest(ids)), alone(backend, EmbeddingRequest(ids, wants_tokens=True))
    np.testing.assert_array_equal(pooled, tokens[0])
    np.testing.assert_array_equal(pooled, alone(backend, EmbeddingRequest(ids, token_type_ids=(0, 0, 0))))


def test_a_bundle_for_another_task_is_refused(bundle: Bundle) -> None:
    with pytest.raises(BundleError, match="has no head 'embed', only translate"):
        OnnxEncoderBackend(bundle, "fp32")


class Binding:
    def __init__(self) -> None:
        self.inputs: dict[str, tuple[str, tuple[int, ...]]] = {}
        self.outputs: dict[str, tuple[str, tuple[int, ...]]] = {}

    def bind_input(self, name: str, device: str, device_id: int, dtype: Any, shape: Any, pointer: int) -> None:
        self.inputs[name] = device, tuple(shape)

    def bind_output(self, name: str, device: str, device_id: int, dtype: Any, shape: Any, pointer: int) -> None:
        self.outputs[name] = device, tuple(shape)


class Session:
    def __init__(self) -> None:
        self.runs: list[Binding] = []

    def io_binding(self) -> Binding:
        return Binding()

    def run_with_iobinding(self, binding: Binding) -> None:
        self.runs.append(binding)


@pytest.mark.parametrize(
    ("wants_tokens", "outputs"),
    [(False, {"embeddings": ("cpu", (2, 32))}), (True, {"token_embeddings": ("cpu", (2, 3, 32))})],
)
def test_only_what_is_wanted_leaves_the_device(
    embedding_bundle: Bundle, monkeypatch: pytest.MonkeyPatch, wants_tokens: bool, outputs: dict[str, Any]
) -> None:
    session = Session()

    def open_fake(path: Path, device: str, num_threads: int, *, repeats_shapes: bool) -> Session:
        assert (path.name, device, num_threads, repeats_shapes) == ("encoder.fp32.onnx", "cuda", 3, False)
        return session

    monkeypatch.setattr(encoder_module, "open_session", open_fake)
    backend = OnnxEncoderBackend(embedding_bundle, "fp32", "cuda", 3)
    backend.encode(*build_arrays([EmbeddingRequest((5, 6, 7)), EmbeddingRequest((8,))], 0), wants_tokens)
    assert session.runs[0].outputs == outputs
    assert session.runs[0].inputs == {
        "input_ids": ("cpu", (2, 3)),
        "lengths": ("cpu", (2,)),
        "token_type_ids": ("cpu", (2, 3)),
    }
