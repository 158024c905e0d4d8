"""A decoder's bundle from its folder to a model that writes."""

from __future__ import annotations

import asyncio
import time

import pytest

from export.bundle import Bundle
from model import reference
from model.transformer import Transformer
from service.engine.core.observer import NullObserver
from service.errors import StartupError
from service.heads.generate.load import generation_limits
from service.heads.generate.model import GenerationModel
from service.heads.registry import COMPANIONS, TASKS
from service.models.loading import load_heads
from service.settings import Settings
from tests.service.engine.decode.toy import request_of


def load(bundle: Bundle, **settings: str | int) -> GenerationModel:
    chosen = Settings.model_validate({"precision": "fp32"} | settings)
    (model,) = load_heads(bundle.path, "cpu", chosen, TASKS, COMPANIONS, lambda _: NullObserver())
    assert isinstance(model, GenerationModel)
    return model


def test_what_the_manifest_says_is_what_is_served(decoder_bundle: Bundle) -> None:
    model = load(decoder_bundle)
    assert (model.name, model.task, model.precision, model.device) == ("tiny", "generate", "fp32", "cpu")
    assert (model.max_total_tokens, model.max_beam_size, model.max_top_tokens) == (96, 8, 16)
    assert model.eos_ids == (decoder_bundle.config.eos_id,)
    assert model.chat_template is None
    assert model.info["architecture"] == "decoder"
    model = load(decoder_bundle, max_total_tokens=50, max_beam_size=4, max_alternatives=3)
    assert (model.max_total_tokens, model.max_beam_size) == (50, 4)
    assert (
        load(decoder_bundle, precision="auto").precision == load(decoder_bundle, precision="int4").precision == "int4"
    )


def test_a_loaded_model_is_healthy_and_writes(decoder_bundle: Bundle, decoder: Transformer) -> None:
    async def main(model: GenerationModel) -> list[int]:
        await model.probe(time.monotonic() + 60)
        stream = await model.engine.open(request_of(prompt=(9, 8), max_new_tokens=7, ignore_eos=True))
        return [event.token_id async for event in stream]

    model = load(decoder_bundle)
    model.engine.start()
    try:
        found = asyncio.run(main(model))
    finally:
        model.engine.close()
    expected = reference.greedy(decoder, None, 7, (9, 8))
    assert found[: len(expected)] == expected
    assert len(found) == 7


@pytest.mark.parametrize(("device", "tokens"), [("cpu", 256), ("cuda", 4096)])
def test_limits_are_those_of_the_settings(device: str, tokens: int) -> None:
    assert generation_limits(Settings(), device, 96, 5000, "tiny").max_prompt_batch_tokens == tokens  # type: ignore[arg-type]
    settings = Settings(max_prompt_batch_tokens=33, max_rows=9, max_prefix_tokens=77)
    limits = generation_limits(settings, "cpu", 96, 5000, "tiny")
    assert (limits.max_prompt_batch_tokens, limits.max_rows) == (33, 9)
    assert (limits.max_cache_bytes, limits.max_prefix_tokens) == (5000, 77)


@pytest.mark.parametrize(("field", "least"), [("max_waiting_tokens", 96), ("max_cache_bytes", 96 * 2 * 2 * 16 * 4)])
def test_a_text_that_could_never_be_served_is_no_offer(decoder_bundle: Bundle, field: str, least: int) -> None:
    settings = {field: least, "max_source_tokens": 50}
    assert load(decoder_bundle, **settings).max_total_tokens == 96
    settings[field] = least - 1
    with pytest.raises(
        StartupError, match=f"POLYHEAD_{field.upper()} .* is {least - 1}, but .* of the model tiny may .* {least}"
    ):
        load(decoder_bundle, **settings)
