"""The engine on ONNX Runtime equals the slow decoder in PyTorch."""

from __future__ import annotations

import random
from functools import cache

import pytest

from export.bundle import Bundle
from model import reference
from model.transformer import Transformer
from service.engine.decode.engine import DecodingEngine
from service.engine.decode.line import DecodingLimits
from service.engine.decode.types import DecodingOptions, DecodingRequest, Result
from service.runtime.decoder import OnnxDecoderBackend

BEAMS = [1] * 10 + [2] * 4 + [4] * 5 + [8] * 2


@cache
def requests() -> list[DecodingRequest]:
    """Of all widths and lengths in a random order; the last is a long one, which outgrows every small table."""
    chance = random.Random(3)
    made = [
        DecodingRequest(
            source_ids=tuple(chance.randrange(4, 300) for _ in range(chance.randint(1, 40))),
            prompt_ids=(1, *(chance.randrange(4, 300) for _ in range(chance.choice([0, 0, 0, 1, 5])))),
            options=DecodingOptions(
                beam_size,
                length_penalty=chance.choice([0.0, 0.6, 1.0]),
                num_hypotheses=chance.randint(1, beam_size),
                max_new_tokens=chance.randint(1, 20),
            ),
        )
        for beam_size in chance.sample(BEAMS, len(BEAMS))
    ]
    long = DecodingRequest(
        source_ids=made[0].source_ids, prompt_ids=(1,), options=DecodingOptions(2, max_new_tokens=70)
    )
    return [*made, long]


@pytest.fixture(scope="module")
def oracle(model: Transformer) -> list[list[reference.Hypothesis]]:
    return [
        reference.beam(
            model,
            request.source_ids,
            request.options.beam_size,
            request.options.max_new_tokens,
            request.options.length_penalty,
            request.options.num_hypotheses,
            request.prompt_ids,
        )
        for request in requests()
    ]


def decode(
    backend: OnnxDecoderBackend, num_loops: int, capacities: tuple[int, ...], *, together: bool = True
) -> list[Result]:
    engine = DecodingEngine(backend, DecodingLimits(max_rows=20), num_loops, capacities=capacities)
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
    results = decode(OnnxDecoderBackend(bundle, "fp32"), num_loops, capacities, together=together)
    for request, result, expected in zip(requests(), results, oracle, strict=True):
        found = result.hypotheses
        assert [list(hypothesis.token_ids) for hypothesis in found] == [best.token_ids for best in expected], request
        assert [hypothesis.score for hypothesis in found] == pytest.approx([best.score for best in expected], abs=1e-4)
    lengths = [len(result.hypotheses[0].token_ids) for result in results]
    assert max(lengths) > 24
    assert any(hypothesis.finished for result in results for hypothesis in result.hypotheses)


def test_int8_gives_a_text_the_same_tokens_alone_and_in_company(bundle: Bundle) -> None:
    backend = OnnxDecoderBackend(bundle, "int8")
    alone = decode(backend, 1, (64, 256), together=False)
    together = decode(backend, 2, (16, 32))
    assert [result.hypotheses for result in together] == [result.hypotheses for result in alone]
