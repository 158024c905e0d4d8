"""A bundle of embeddings from its folder to a model that answers."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from pathlib import Path

import numpy as np
import pytest

from export.bundle import Bundle
from export.manifest import ParityReport
from service.engine.core.observer import NullObserver
from service.engine.encode.embedding import EmbeddingRequest
from service.errors import StartupError
from service.heads.embed.load import embedding_limits, exact_precisions
from service.heads.embed.model import EmbeddingModel
from service.heads.registry import COMPANIONS, TASKS, load_models
from service.heads.translate.languages import choose_translator
from service.models.loading import load_heads
from service.runtime.encoder import OnnxEncoderBackend
from service.settings import Settings
from tests.service.runtime.embedding_bundles import MAX_TOKENS


def load(bundle: Bundle, **settings: str) -> EmbeddingModel:
    (model,) = load_heads(bundle.path, "cpu", Settings(**settings), TASKS, COMPANIONS, lambda _: NullObserver())  # type: ignore[arg-type]
    assert isinstance(model, EmbeddingModel)
    return model


def test_what_the_manifest_says_is_what_is_served(embedding_bundle: Bundle) -> None:
    model = load(embedding_bundle, precision="int8")
    assert (model.name, model.task, model.precision, model.device) == ("tiny-embed", "embed", "int8", "cpu")
    assert (model.max_input_tokens, model.dimensions, model.pooling, model.normalize) == (MAX_TOKENS, 32, "mean", True)
    assert model.num_special_tokens == 1
    assert model.info["architecture"] == "encoder"


def test_a_loaded_model_is_healthy_and_embeds(embedding_bundle: Bundle) -> None:
    model = load(embedding_bundle, precision="fp32")
    model.engine.start()
    try:
        asyncio.run(model.probe(time.monotonic() + 60))
        (result,) = asyncio.run(model.engine.run([EmbeddingRequest((5, 6, 7))]))
    finally:
        model.engine.close()
    backend = OnnxEncoderBackend(embedding_bundle, "fp32")
    expected = backend.encode(np.array([[5, 6, 7]]), np.array([3]), None, False)[0]
    np.testing.assert_allclose(result.values, expected, rtol=1e-6, atol=1e-6)


def test_models_of_several_tasks_are_served_together(embedding_bundle: Bundle, bundle: Bundle, tmp_path: Path) -> None:
    for each in (embedding_bundle, bundle):
        (tmp_path / each.name).symlink_to(each.path)
    registry = load_models(Settings(bundles=tmp_path, precision="fp32"), lambda _: NullObserver())
    assert {model.name: model.task for model in registry.models} == {"tiny": "translate", "tiny-embed": "embed"}
    assert registry.choose(EmbeddingModel).name == "tiny-embed"
    assert choose_translator(registry, "en", "de").name == "tiny"


def test_auto_leaves_out_a_precision_that_is_too_coarse(embedding_bundle: Bundle) -> None:
    manifest = embedding_bundle.manifest

    def exact(cosine: float | None) -> list[str]:
        parity = manifest.parity | {"int8": ParityReport(status="passed", smallest_cosine=cosine)}
        return exact_precisions(
            dataclasses.replace(embedding_bundle, manifest=manifest.model_copy(update={"parity": parity}))
        )

    assert exact(0.9899) == ["fp32"]
    assert exact(0.99) == ["fp32", "int8"]
    assert exact(None) == ["fp32", "int8"]


@pytest.mark.parametrize(
    ("name", "flag"),
    [
        ("POLYHEAD_MAX_EMBEDDING_BATCH_TOKENS", "--max-embedding-batch-tokens"),
        ("POLYHEAD_MAX_WAITING_TOKENS", "--max-waiting-tokens"),
    ],
)
def test_limits_below_the_longest_input_are_refused_at_start(name: str, flag: str) -> None:
    field = flag.removeprefix("--").replace("-", "_")
    settings = Settings.model_validate({"max_source_tokens": 1, field: 4096})
    message = rf"{name} \({flag}\) is 4096, but model m takes inputs of up to 8192 tokens, which could then never run"
    with pytest.raises(StartupError, match=message):
        embedding_limits(settings, "cpu", 8192, "m")
    assert embedding_limits(settings, "cpu", 4096, "m").max_waiting_requests == settings.max_waiting_requests


def test_the_budget_of_a_batch_by_device() -> None:
    assert embedding_limits(Settings(), "cpu", 512, "m").max_batch_tokens == 512
    assert embedding_limits(Settings(), "cpu", 2048, "m").max_batch_tokens == 2048
    assert embedding_limits(Settings(), "cuda", 512, "m").max_batch_tokens == 16_384
    assert embedding_limits(Settings(max_embedding_batch_tokens=700), "cuda", 512, "m").max_batch_tokens == 700
