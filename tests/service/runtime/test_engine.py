"""The engine on ONNX Runtime equals the slow decoder in PyTorch."""

from __future__ import annotations

import random
from functools import cache
from itertools import product

import numpy as np
import pytest

from export.bundle import Bundle
from model import reference
from model.beam_oracle import Hypothesis
from model.transformer import Transformer
from service.engine.decode.engine import DecodingEngine
from service.engine.decode.line import DecodingLimits
from service.engine.decode.sampling.chooser import TokenChooser
from service.engine.decode.sampling.options import SamplingOptions
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
def oracle(model: Transformer) -> list[list[Hypothesis]]:
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
    oracle: list[list[Hypothesis]],
    num_loops: int,
    capacities: tuple[int, ...],
    together: bool,
) -> None:
    results = decode(OnnxDecoderBackend(bundle, "fp32"), num_loops, capacities, together=together)
    for request, result, expected in zip(requests(), results, oracle, strict=True):
        found = result.hypotheses
        assert [list(hypothesis.token_ids) for hypothesis in found] == [best.token_ids for best in expected], request
        assert [hypothesis.score for hypothesis in found] == pytest.approx([best.score for best in expected], rel=1e-5)
    lengths = [len(result.hypotheses[0].token_ids) for result in results]
    assert max(lengths) > 24
    assert any(hypothesis.finished for result in results for hypothesis in result.hypotheses)


def test_int8_gives_a_text_the_same_tokens_alone_and_in_company(bundle: Bundle) -> None:
    backend = OnnxDecoderBackend(bundle, "int8")
    alone = decode(backend, 1, (64, 256), together=False)
    together = decode(backend, 2, (16, 32))
    assert [result.hypotheses for result in together] == [result.hypotheses for result in alone]


SAMPLINGS = (
    SamplingOptions(do_sample=True, seed=1),
    SamplingOptions(do_sample=True, temperature=0.7, top_k=40, seed=2),
    SamplingOptions(do_sample=True, temperature=1.5, top_p=0.8, seed=3),
)


def sampled_by_the_oracle(model: Transformer, request: DecodingRequest) -> list[int]:
    """Draw after draw from the slow model's distributions; ends as the engine does, without the end token."""
    chooser = TokenChooser(request.sampling, request.prompt_ids)
    new: list[int] = []
    while len(new) < request.options.max_new_tokens:
        log_probs = reference.next_log_probs(model, request.source_ids, [*request.prompt_ids, *new])
        token = chooser.choose(np.array(log_probs, np.float32)).token_id
        if token == model.config.eos_id:
            break
        new.append(token)
    return new


def test_sampled_outputs_of_sources_equal_the_oracle_draw_for_draw(bundle: Bundle, model: Transformer) -> None:
    chance = random.Random(7)
    sampled = [
        DecodingRequest(
            source_ids=tuple(chance.randrange(4, 300) for _ in range(length)),
            prompt_ids=(1, *(chance.randrange(4, 300) for _ in range(num_forced))),
            options=DecodingOptions(max_new_tokens=25),
            sampling=sampling,
        )
        for sampling, length, num_forced in product(SAMPLINGS, (3, 17, 30), (0, 6))
    ]
    engine = DecodingEngine(OnnxDecoderBackend(bundle, "fp32"), DecodingLimits(max_rows=20))
    engine.start()
    try:
        others = [engine.submit(request) for request in requests()]  # searches and greedy ones run beside them
        found = [future.result(120).best.token_ids for future in [engine.submit(request) for request in sampled]]
        for future in others:
            future.result(120)
    finally:
        engine.close()
    assert [list(token_ids) for token_ids in found] == [sampled_by_the_oracle(model, request) for request in sampled]
    assert max(map(len, found)) > 10


@pytest.mark.parametrize("beam_size", [1, 4])
def test_two_sources_with_one_forced_prefix_of_20_tokens(bundle: Bundle, model: Transformer, beam_size: int) -> None:
    chance = random.Random(9)
    prefix = (1, *(chance.randrange(4, 300) for _ in range(20)))
    sources = [tuple(chance.randrange(4, 300) for _ in range(length)) for length in (9, 12)]
    engine = DecodingEngine(OnnxDecoderBackend(bundle, "fp32"), DecodingLimits(max_rows=20))
    engine.start()
    try:
        for source in sources:  # one after the other, so that the row of the first could be kept for the second
            options = DecodingOptions(beam_size, max_new_tokens=20)
            request = DecodingRequest(source_ids=source, prompt_ids=prefix, options=options)
            (expected,) = reference.beam(model, source, beam_size, 20, prompt=prefix)
            best = engine.submit(request).result(120).best
            assert list(best.token_ids) == expected.token_ids
            assert best.score == pytest.approx(expected.score, rel=1e-5)
    finally:
        engine.close()
