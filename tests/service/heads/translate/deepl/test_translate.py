"""POST /v2/translate, its languages and its glossaries, with a stand-in at the engine."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from service.heads.translate.deepl_languages import parse_language
from service.heads.translate.errors import UnsupportedLanguageError
from service.heads.translate.languages import Languages
from service.models.registry import ModelRegistry
from tests.service.conftest import Running, Serve
from tests.service.fakes import FakeEngine, fake_model, tiny_tokenizer


def translate(served: Running, **fields: Any) -> httpx.Response:
    return served.client.post("/v2/translate", json={"text": ["Good morning."], "target_lang": "DE"} | fields)


def texts(response: httpx.Response) -> list[str]:
    assert response.status_code == 200, response.text
    return [each["text"] for each in response.json()["translations"]]


def test_texts_are_translated_in_order(server: Running) -> None:
    answer = translate(server, text=["Good morning.", "", "The house is old."], source_lang="EN")
    assert answer.json() == {
        "translations": [
            {"detected_source_language": "EN", "text": "GOOD MORNING."},
            {"detected_source_language": "EN", "text": ""},
            {"detected_source_language": "EN", "text": "THE HOUSE IS OLD."},
        ]
    }


def test_the_language_of_each_text_is_detected(server: Running) -> None:
    answer = translate(
        server, text=["Where is the key to this old house?", "Wo ist der Schlüssel?"], target_lang="DE"
    ).json()["translations"]
    assert [each["detected_source_language"] for each in answer] == ["EN", "DE"]
    assert answer[1]["text"] == "Wo ist der Schlüssel?"  # is in the target language already


def test_a_form_repeats_its_texts(server: Running) -> None:
    for name in ("text", "text[]"):
        form = {name: ["One.", "Two."], "target_lang": "de", "source_lang": "EN", "show_billed_characters": "1"}
        answer = server.client.post("/v2/translate", data=form)
        assert texts(answer) == ["ONE.", "TWO."]
        assert [each["billed_characters"] for each in answer.json()["translations"]] == [4, 4]
    files = [
        ("text", (None, "One.")),
        ("text", (None, "Two.")),
        ("target_lang", (None, "DE")),
        ("source_lang", (None, "EN")),
    ]
    assert texts(server.client.post("/v2/translate", files=files)) == ["ONE.", "TWO."]
    assert texts(server.client.post("/v2/translate?text=One.&text=Two.&target_lang=DE&source_lang=EN")) == [
        "ONE.",
        "TWO.",
    ]


@pytest.mark.parametrize("code", ["DE", "de", "de-DE", "DE-AT", "de_CH"])
def test_variants_of_a_language_are_the_language(server: Running, code: str) -> None:
    assert texts(translate(server, target_lang=code)) == ["GOOD MORNING."]


@pytest.mark.parametrize("code", ["EN-US", "EN-GB", "EN"])
def test_english_may_be_asked_for_by_country(server: Running, code: str) -> None:
    assert texts(translate(server, target_lang=code, source_lang="DE")) == ["GOOD MORNING."]


def test_tags_are_kept(server: Running) -> None:
    html = translate(server, text=["<p>Good <b>morning</b>&nbsp;x</p>"], tag_handling="html", source_lang="EN")
    assert texts(html) == ["<p>GOOD <b>MORNING</b>&nbsp;X</p>"]
    xml = translate(
        server,
        text=["<r>Good <keep>morning</keep> my <b>friend</b></r>"],
        tag_handling="xml",
        ignore_tags=["keep,other"],
        splitting_tags=["r"],
        non_splitting_tags="b",
        outline_detection=False,
        source_lang="EN",
    )
    assert texts(xml) == ["<r>GOOD <keep>morning</keep> MY <b>FRIEND</b></r>"]


def test_tags_in_a_form_are_a_list_with_commas(server: Running) -> None:
    form = {"text": "<a>x y</a><b>z</b><c>w</c>", "target_lang": "DE", "source_lang": "EN", "tag_handling": "xml"}
    answer = server.client.post("/v2/translate", data=form | {"ignore_tags": "a,c", "outline_detection": "0"})
    assert texts(answer) == ["<a>x y</a><b>Z</b><c>w</c>"]


@pytest.mark.parametrize(
    ("split", "num_sentences"), [("0", 1), (0, 1), ("1", 3), (True, 3), ("nonewlines", 2), (None, 3)]
)
def test_sentences_are_split_as_asked(serve: Serve, split: Any, num_sentences: int) -> None:
    served = serve()
    translate(served, text=["One line\nand its end. Another."], source_lang="EN", split_sentences=split)
    assert len(served.engine.requests) == num_sentences


def test_latency_is_optimized_by_greedy_search(serve: Serve) -> None:
    served = serve()
    for model_type, used, beam_size in (
        ("latency_optimized", "latency_optimized", 1),
        ("quality_optimized", "quality_optimized", 2),
        ("prefer_quality_optimized", "quality_optimized", 2),
    ):
        answer = translate(served, model_type=model_type).json()["translations"][0]
        assert answer["model_type_used"] == used
        assert served.engine.requests[-1].options.beam_size == beam_size


@pytest.mark.parametrize(
    "fields",
    [
        {"context": "A letter."},
        {"formality": "prefer_more"},
        {"formality": "default"},
        {"preserve_formatting": True},
        {"tag_handling_version": "v2"},
        {"translation_memory_threshold": 80},
        {"unknown": 1},
    ],
)
def test_options_that_change_nothing_are_taken(server: Running, fields: dict[str, Any]) -> None:
    assert texts(translate(server, **fields)) == ["GOOD MORNING."]


@pytest.mark.parametrize(
    ("fields", "status", "word"),
    [
        ({"text": None}, 400, "text"),
        ({"text": []}, 400, "text"),
        ({"text": [1]}, 400, "text"),
        ({"target_lang": None}, 400, "target_lang"),
        ({"target_lang": "XX"}, 400, "XX"),
        ({"target_lang": "ZH-HANT"}, 400, "ZH-HANT"),
        ({"source_lang": "auto"}, 400, "auto"),
        ({"split_sentences": "2"}, 400, "split_sentences"),
        ({"formality": "more"}, 400, "formality"),
        ({"formality": "less"}, 400, "prefer_less"),
        ({"formality": "rude"}, 400, "formality"),
        ({"tag_handling": "markdown"}, 400, "tag_handling"),
        ({"tag_handling": "xml", "text": ["<a>"]}, 400, "XML"),
        ({"model_type": "best"}, 400, "model_type"),
        ({"glossary_id": "abc"}, 404, "abc"),
        ({"glossary_ids": ["abc"]}, 404, "abc"),
        ({"style_id": "abc"}, 400, "style_id"),
        ({"translation_memory_id": "abc"}, 400, "translation_memory_id"),
        ({"custom_instructions": ["be brief"]}, 400, "custom_instructions"),
        ({"text": ["a"] * 257}, 413, "257"),
        ({"text": ["a" * 60_000, "b" * 60_000]}, 413, "120000"),
        ({"text": ["a" * 3_000_000]}, 413, "bytes"),
    ],
)
def test_what_is_wrong_is_said(server: Running, fields: dict[str, Any], status: int, word: str) -> None:
    answer = translate(server, **fields)
    assert (answer.status_code, set(answer.json())) == (status, {"message"})
    assert word in answer.json()["message"]


def test_a_full_engine_is_a_429(serve: Serve) -> None:
    served = serve()
    served.engine.max_waiting = 0
    answer = translate(served)
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "3"
    assert "message" in answer.json()


def test_keys_come_in_deepls_scheme(serve: Serve) -> None:
    served = serve(api_keys="one:fx")
    assert translate(served).status_code == 403
    served.client.headers["Authorization"] = "DeepL-Auth-Key two"
    assert translate(served).status_code == 403
    served.client.headers["Authorization"] = "DeepL-Auth-Key one:fx"
    assert texts(translate(served)) == ["GOOD MORNING."]
    served.client.headers["Authorization"] = "Bearer one:fx"
    assert texts(translate(served)) == ["GOOD MORNING."]


def test_languages(server: Running) -> None:
    sources = [{"language": "DE", "name": "German"}, {"language": "EN", "name": "English"}]
    targets = [
        {"language": "DE", "name": "German", "supports_formality": False},
        {"language": "EN-GB", "name": "English (British)", "supports_formality": False},
        {"language": "EN-US", "name": "English (American)", "supports_formality": False},
    ]
    assert server.client.get("/v2/languages").json() == sources
    assert server.client.get("/v2/languages?type=target").json() == targets
    assert server.client.request("GET", "/v2/languages", data={"type": "target"}).json() == targets
    assert server.client.post("/v2/languages", json={"type": "target"}).json() == targets
    assert server.client.get("/v2/languages?type=both").status_code == 400


def test_a_language_that_is_only_a_source_is_no_target(serve: Serve) -> None:
    def models(engine: FakeEngine) -> list[Any]:
        return [fake_model(engine, directions=[("en", "no"), ("pt", "no"), ("en", "pt")])]

    served = serve(models=models)
    codes = [each["language"] for each in served.client.get("/v2/languages").json()]
    assert codes == ["EN", "PT"]
    targets = [each["language"] for each in served.client.get("/v2/languages?type=target").json()]
    assert targets == ["NB", "PT-BR", "PT-PT"]


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ("NB", "no"),
        ("no", "no"),
        ("pt-br", "pt-BR"),
        ("PT_BR", "pt-BR"),
        ("ES-419", "es"),
        ("ZH-HANS", "zh"),
        ("zh", "zh"),
    ],
)
def test_codes_are_those_of_the_models(written: str, code: str) -> None:
    directions = [("en", code) for code in ("no", "pt-BR", "es", "zh")]
    languages = Languages(ModelRegistry([fake_model(FakeEngine(tiny_tokenizer()), directions=directions)]))
    assert parse_language(written, languages, parameter="target_lang") == code
    for other in ("PT-PT", "ZH-HANT", "DE"):
        with pytest.raises(UnsupportedLanguageError):
            parse_language(other, languages, parameter="target_lang")


def test_there_are_no_glossaries(server: Running) -> None:
    client = server.client
    assert client.get("/v2/glossary-language-pairs").json() == {"supported_languages": []}
    for version in ("v2", "v3"):
        assert client.get(f"/{version}/glossaries").json() == {"glossaries": []}
        for answer, status in (
            (client.post(f"/{version}/glossaries", json={"name": "x"}), 400),
            (client.get(f"/{version}/glossaries/abc"), 404),
            (client.get(f"/{version}/glossaries/abc/entries"), 404),
            (client.delete(f"/{version}/glossaries/abc"), 404),
        ):
            assert (answer.status_code, set(answer.json())) == (status, {"message"})
    assert client.patch("/v3/glossaries/abc", json={}).status_code == 404
    assert client.put("/v3/glossaries/abc/dictionaries", json={}).status_code == 404


@pytest.mark.parametrize("path", ["/v2/write/rephrase", "/v3/style_rules", "/v2/nothing"])
def test_what_is_not_offered_is_a_404_in_deepls_words(server: Running, path: str) -> None:
    answer = server.client.post(path, json={})
    assert (answer.status_code, answer.json()) == (404, {"message": "Not Found"})
