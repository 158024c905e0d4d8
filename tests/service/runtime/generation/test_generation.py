"""The engine on ONNX Runtime against the reference decoder in PyTorch, whatever is in the batch."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import numpy as np
import pytest

from export.bundle import Bundle
from model import reference
from model.transformer import Transformer
from service.engine.core.observer import NullObserver
from service.engine.decode.engine import DecodingEngine
from service.engine.decode.line import DecodingLimits
from service.engine.decode.sampling.options import SamplingOptions
from service.engine.decode.stream import TokenStream
from service.engine.decode.types import DecodingRequest, Result
from service.runtime.decoder import OnnxDecoderBackend
from service.runtime.memory import HostMemory, Memory
from tests.export.rounded import rounded_decoder
from tests.service.engine.decode.toy import request_of
from tests.service.runtime.blocks import HostCudaMemory

HEADER = tuple(7 + 13 * place % 250 for place in range(30))
MIXES = {
    "plain": DecodingLimits(max_prefix_tokens=1),
    "chunked": DecodingLimits(max_prompt_batch_tokens=7, max_prefix_tokens=1),
    "reused": DecodingLimits(max_prompt_batch_tokens=50),
    "crowded": DecodingLimits(
        max_rows=5, max_cache_bytes=300 * 2 * 2 * 16 * 4, max_prompt_batch_tokens=24, max_prefix_tokens=200
    ),
}


def requests_of(count: int, sampling: bool) -> list[DecodingRequest]:
    chance = random.Random(1)
    requests = []
    for seed in range(count):
        tail = tuple(chance.randrange(3, 300) for _ in range(chance.randint(1, 20)))
        prompt = (*HEADER[: chance.choice([0, 20, 30])], *tail)
        options = SamplingOptions(do_sample=True, temperature=0.8, top_p=0.95, repetition_penalty=1.1, seed=seed)
        requests.append(
            request_of(
                prompt=prompt,
                sampling=options if sampling else SamplingOptions(),
                max_new_tokens=chance.randint(1, 40),
            )
        )
    return requests


class Reuse(NullObserver):
    num_tokens = 0

    def on_prompt(self, num_tokens: int, num_reused_tokens: int, num_new_tokens: int) -> None:
        self.num_tokens += num_reused_tokens


async def read(stream: TokenStream) -> list[int]:
    return [event.token_id async for event in stream]


def generate(
    bundle: Bundle,
    requests: Sequence[DecodingRequest],
    limits: DecodingLimits,
    num_loops: int = 1,
    memory: Memory | None = None,
    observer: NullObserver | None = None,
    precision: str = "fp32",
) -> list[list[int]]:
    """The tokens of all requests, which come in three waves."""
    backend = OnnxDecoderBackend(bundle, precision, memory=memory)

    async def main() -> list[list[int]]:
        engine = DecodingEngine(backend, limits, num_loops, observer, capacities=(24, 48))
        engine.start()
        try:
            tasks: list[asyncio.Task[list[int]]] = []
            for wave in range(3):
                streams = [await engine.open(request) for request in requests[wave::3]]
                tasks += [asyncio.create_task(read(stream)) for stream in streams]
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            found = iter(await asyncio.gather(*tasks))
            order = [index for wave in range(3) for index in range(wave, len(requests), 3)]
            results = dict(zip(order, found, strict=True))
            return [results[index] for index in range(len(requests))]
        finally:
            await asyncio.to_thread(engine.close)

    return asyncio.run(asyncio.wait_for(main(), 120))


@pytest.fixture(scope="module")
def expected(decoder: Transformer) -> list[list[int]]:
    return greedy(decoder)


def greedy(decoder: Transformer) -> list[list[int]]:
    """What the reference writes, greedily, with its end token."""
    outputs = []
    for request in requests_of(18, sampling=False):
        tokens = reference.greedy(decoder, None, request.options.max_new_tokens, request.prompt_ids)
        outputs.append(tokens + [decoder.config.eos_id] * (len(tokens) < request.options.max_new_tokens))
    return outputs


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("memory", [HostMemory(), HostCudaMemory()], ids=["host", "cuda"])
def test_greedy_tokens_equal_the_references(
    decoder_bundle: Bundle, expected: list[list[int]], mix: str, memory: Memory
) -> None:
    reuse = Reuse()
    found = generate(decoder_bundle, requests_of(18, sampling=False), MIXES[mix], memory=memory, observer=reuse)
    assert found == expected
    assert (reuse.num_tokens > 0) or mix in ("plain", "chunked")


def test_int4_writes_what_the_reference_does_with_its_rounded_numbers_whatever_is_in_the_batch(
    decoder_bundle: Bundle, decoder: Transformer, expected: list[list[int]]
) -> None:
    requests, rounded = requests_of(18, sampling=False), greedy(rounded_decoder(decoder))
    assert rounded != expected
    for mix in ("plain", "crowded"):
        assert generate(decoder_bundle, requests, MIXES[mix], precision="int4") == rounded


def test_several_loops(decoder_bundle: Bundle, expected: list[list[int]]) -> None:
    assert generate(decoder_bundle, requests_of(18, sampling=False), MIXES["reused"], num_loops=2) == expected


def test_a_seed_gives_the_same_text_whatever_else_is_in_the_batch(decoder_bundle: Bundle) -> None:
    requests = requests_of(18, sampling=True)
    alone = [generate(decoder_bundle, [request] * 3, MIXES["plain"])[0] for request in requests[:6]]
    together = generate(decoder_bundle, requests, MIXES["plain"])
    assert together[:6] == alone
    assert len(set(map(tuple, together))) == len(requests)
    for mix in ("chunked", "reused", "crowded"):
        assert generate(decoder_bundle, requests, MIXES[mix]) == together


async def search(bundle: Bundle, requests: Sequence[DecodingRequest]) -> list[Result]:
    engine = DecodingEngine(OnnxDecoderBackend(bundle, "fp32"), DecodingLimits(max_rows=9), capacities=(24,))
    engine.start()
    try:
        other = await engine.open(request_of(prompt=HEADER, max_new_tokens=30, ignore_eos=True))
        results = await asyncio.gather(*(engine.run([request]) for request in requests))
        await read(other)
        return [result for (result,) in results]
    finally:
        await asyncio.to_thread(engine.close)


def test_beam_search_equals_the_references(decoder_bundle: Bundle, decoder: Transformer) -> None:
    requests = [
        request_of(prompt=prompt, max_new_tokens=12, beam_size=beam_size, num_hypotheses=beam_size, length_penalty=0.7)
        for prompt, beam_size in (((5,), 1), ((17, 44, 9), 4), (HEADER[:25], 2))
    ]
    for request, result in zip(requests, asyncio.run(search(decoder_bundle, requests)), strict=True):
        expected = reference.beam(
            decoder, None, request.options.beam_size, 12, 0.7, request.options.num_hypotheses, list(request.prompt_ids)
        )
        assert [list(hypothesis.token_ids) for hypothesis in result.hypotheses] == [
            hypothesis.token_ids for hypothesis in expected
        ]
        found = [hypothesis.score for hypothesis in result.hypotheses]
        assert found == pytest.approx([hypothesis.score for hypothesis in expected], abs=1e-4)


def test_log_probabilities_of_prompt_and_output(decoder_bundle: Bundle, decoder: Transformer) -> None:
    request = request_of(prompt=HEADER[:9], max_new_tokens=5, top_n_tokens=3, wants_prompt_log_probs=True)

    async def main() -> tuple[TokenStream, list[tuple[int, float]]]:
        engine = DecodingEngine(OnnxDecoderBackend(decoder_bundle, "fp32"), capacities=(24,))
        engine.start()
        try:
            other = await engine.open(request_of(prompt=HEADER, max_new_tokens=30))
            stream = await engine.open(request)
            events = [event async for event in stream]
            await read(other)
            assert all(event.top_tokens[0] == (event.token_id, event.log_prob) for event in events)
            return stream, [(event.token_id, event.log_prob) for event in events]
        finally:
            await asyncio.to_thread(engine.close)

    stream, events = asyncio.run(main())
    text = [*request.prompt_ids, *(token for token, _ in events)]
    assert stream.prompt_log_probs is not None
    assert stream.prompt_log_probs[0] == (text[0], None, ())
    for place, token in enumerate(text[1:], start=1):
        log_probs = np.array(reference.next_log_probs(decoder, None, text[:place]))
        if place < len(request.prompt_ids):
            scored = stream.prompt_log_probs[place]
            assert scored.token_id == token
            assert scored.log_prob == pytest.approx(log_probs[token], abs=1e-4)
            assert [best for best, _ in scored.top_tokens] == np.argsort(-log_probs)[:3].tolist()
        else:
            assert events[place - len(request.prompt_ids)][1] == pytest.approx(log_probs[token], abs=1e-4)
