"""What the engine of attention maps does beside what every engine does (`test_contract`)."""

from __future__ import annotations

import asyncio

import pytest

from service.engine.encode.attention import AttentionRequest
from service.engine.encode.attention_engine import AttentionEngine
from tests.service.engine.toy_attention import ToyAttention, values_of


@pytest.mark.parametrize("wants_norms", [False, True])
def test_norms_are_there_where_they_are_wanted(wants_norms: bool) -> None:
    engine = AttentionEngine(ToyAttention())
    engine.start()
    try:
        request = AttentionRequest((1, 2), (3,), wants_norms=wants_norms)
        (result,) = asyncio.run(engine.run([request]))
        assert result.maps["encoder"][0].tolist() == values_of(request)
        assert (result.norms is not None) == wants_norms
    finally:
        engine.close()


def test_a_decoder_takes_no_source() -> None:
    engine = AttentionEngine(ToyAttention(reads_source=False))
    engine.start()
    try:
        with pytest.raises(ValueError, match="source_ids must not be given"):
            engine.submit(AttentionRequest((4,), (1,)))
        assert engine.submit(AttentionRequest(None, (4, 5))).result(30).num_input_tokens == 2
    finally:
        engine.close()
