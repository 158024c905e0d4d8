from __future__ import annotations

import pytest

from service.errors import ModelTaskError, NoModelError, StartupError, UnknownModelError
from service.heads.embed.model import EmbeddingModel
from service.heads.translate.languages import Languages, choose_translator
from service.models.registry import ModelRegistry
from tests.service.embed_fakes import FakeEmbeddingEngine, fake_embedder
from tests.service.fakes import FakeEngine, fake_model, tiny_tokenizer


def registry(*, translators: tuple[str, ...] = ("a",), embedders: tuple[str, ...] = ("b", "c")) -> ModelRegistry:
    return ModelRegistry(
        [fake_model(FakeEngine(tiny_tokenizer()), name=name) for name in translators]
        + [fake_embedder(FakeEmbeddingEngine(), name=name) for name in embedders]
    )


def test_the_first_model_of_the_task_or_the_one_named() -> None:
    assert registry().choose(EmbeddingModel).name == "b"
    assert registry().choose(EmbeddingModel, "c").name == "c"
    assert choose_translator(registry(), "en", "de").name == "a"
    assert choose_translator(registry(), "en", "de", "a").name == "a"


def test_an_unknown_name_lists_the_names() -> None:
    with pytest.raises(UnknownModelError, match="'x' is not loaded, choose from: a, b, c"):
        registry().choose(EmbeddingModel, "x")


def test_a_model_of_another_task_lists_those_that_would_do() -> None:
    with pytest.raises(ModelTaskError, match="'a' is for the task translate, not for embed, choose from: b, c"):
        registry().choose(EmbeddingModel, "a")
    with pytest.raises(ModelTaskError, match="'b' is for the task embed, not for translate, choose from: a"):
        choose_translator(registry(), "en", "de", "b")
    with pytest.raises(ModelTaskError, match="not for embed, for which no model is loaded"):
        registry(embedders=()).choose(EmbeddingModel, "a")


def test_no_model_of_the_task_says_what_to_add() -> None:
    with pytest.raises(NoModelError, match=r"No model for the task embed is loaded: add a bundle .* POLYHEAD_BUNDLES"):
        registry(embedders=()).choose(EmbeddingModel)


def test_only_translators_have_languages() -> None:
    assert [language.code for language in registry().view(Languages).offered] == ["de", "en"]
    assert registry(translators=()).view(Languages).offered == ()


def test_names_are_unique_over_all_tasks() -> None:
    with pytest.raises(StartupError, match="two bundles have the name a"):
        registry(translators=("a",), embedders=("a",))
