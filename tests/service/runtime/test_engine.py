"""The engine on ONNX Runtime equals the slow decoder in PyTorch."""

from __future__ import annotations

import random
from functools import cache

import pytest

from export.bundle import Bundle
from model import reference
from model.transformer import Transformer
from service.engine.engine import Engine
from service.engine.types import DecodingOptions, GenerationResult, InferenceRequest
from service.engine.waiting import EngineLimits
from service.runtime.backend import OnnxBackend

BEAMS = [1] * 10 + [2] * 4 + [4] * 5 + [8] * 2


@cache
def requests() -> list[InferenceRequest]:
    """Of all widths and lengths in a random order; the last is a long one, which outgrows every small table."""
    chance = random.Random(3)
    made = [
        InferenceRequest(
            tuple(chance.randrange(4, 300) for _ in range(chance.randint(1, 40))),
            DecodingOptions(
                beam_size,
                length_penalty=chance.choice([0.0, 0.6, 1.0]),
                num_hypotheses=chance.randint(1, beam_size),
                max_new_tokens=chance.randint(1, 20),
            ),
        )
        for beam_size in chance.sample(BEAMS, len(BEAMS))
    ]
    return [*made, InferenceRequest(made[0].input_ids, DecodingOptions(2, max_new_tokens=70))]


@pytest.fixture(scope="module")
def oracle(model: Transformer) -> list[list[reference.Hypothesis]]:
    return [
        reference.beam(
            model,
            request.input_ids,
            request.options.beam_size,
            request.options.max_new_tokens,
            request.options.length_penalty,
            request.options.num_hypotheses,
        )
        for request in requests()
    ]


def decode(
    backend: OnnxBackend, num_loops: int, capacities: tuple[int, ...], *, together: bool = True
) -> list[GenerationResult]:
    engine = Engine(backend, EngineLimits(max_rows=20), num_loops, capacities=capacities)
    engine.start()
    try:
        if together:
            return [future.result(120) for future in [engine.submit(request) for request in requests()]]
        return [engine.submit(request).result(120) for request in requests()]
    finally:
        engine.close()


@pytest.mark.parametrize(
    ("num_loops", "capacities", "together"), [(1, (64, 256), False), (1, (8, 24), True), (2, (16, 32), True)]
)
def test_fp32_equals_the_oracle_token_for_token(
    bundle: Bundle,
    oracle: list[list[reference.Hypothesis]],
    num_loops: int,
    capacities: tuple[int, ...],
    together: bool,
) -> None:
    results = decode(OnnxBackend(bundle, "fp32"), num_loops, capacities, together=together)
    for request, result, expected in zip(requests(), results, oracle, strict=True):
        found = result.hypotheses
        assert [list(hypothesis.token_ids) for hypothesis in found] == [best.token_ids for best in expected], request
        assert [hypothesis.score for hypothesis in found] == pytest.approx([best.score for best in expected], abs=1e-4)
    lengths = [len(result.hypotheses[0].token_ids) for result in results]
    assert max(lengths) > 24
    assert any(hypothesis.finished for result in results for hypothesis in result.hypotheses)


def test_int8_gives_a_text_the_same_tokens_alone_and_in_company(bundle: Bundle) -> None:
    backend = OnnxBackend(bundle, "int8")
    alone = decode(backend, 1, (64, 256), together=False)
    together = decode(backend, 2, (16, 32))
    assert [result.hypotheses for result in together] == [result.hypotheses for result in alone]
