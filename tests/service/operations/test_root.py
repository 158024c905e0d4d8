"""Bodies at the root, as TGI's, TEI's and Hugging Face's clients send them, and names that name no model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from service.engine.core.errors import ModelUnavailableError
from service.errors import SettingsError, StartupError
from service.heads.embed.model import EmbeddingModel
from service.models.registry import ModelRegistry
from service.operations.root import check_root_task, choose_answer
from service.settings import Settings
from tests.service.all_heads import All, models_but, running_all
from tests.service.conftest import Running, Serve
from tests.service.embed_fakes import FakeEmbeddingEngine, embed_tokenizer, fake_embedder, pooled
from tests.service.fakes import FakeEngine, fake_model, tiny_tokenizer
from tests.service.generation_fakes import SAID, fallback_tokenizer
from tests.service.generation_http import events

TEXT = "the house"
ENGLISH = "Where is the key to this old house?"


@pytest.fixture(scope="module")
def served() -> Iterator[All]:
    with running_all() as found:
        yield found


def unit(text: str) -> Any:
    (encoding,) = embed_tokenizer().encodings([text])
    vector = pooled(encoding.ids)
    return vector / np.linalg.norm(vector)


@pytest.mark.parametrize("path", ["/", "/invocations"])
def test_a_parameter_of_tgi_generates_and_gives_a_list(served: All, path: str) -> None:
    response = served.post(path, inputs="a b", parameters={"max_new_tokens": 40, "details": True})
    assert response.status_code == 200
    (answer,) = response.json()
    assert answer["generated_text"] == "a b" + SAID  # return_full_text is true at the root
    assert answer["details"]["finish_reason"] == "eos_token"
    assert response.headers["x-generated-tokens"]


def test_the_prompt_can_be_left_out_at_the_root(served: All) -> None:
    response = served.post(inputs="a b", parameters={"return_full_text": False})
    assert response.json() == [{"generated_text": SAID}]


def test_stream_false_generates_and_stream_true_streams(served: All) -> None:
    assert served.post(inputs="a b", stream=False).json() == [{"generated_text": "a b" + SAID}]
    *_, last = events(served.post(inputs="a b", stream=True, parameters={"return_full_text": False}))
    assert last["generated_text"] == SAID


def test_feature_extraction_at_the_root(served: All) -> None:
    (vector,) = served.post(inputs=TEXT, normalize=True).json()
    np.testing.assert_allclose(vector, unit(TEXT), rtol=1e-5)


@pytest.mark.parametrize("path", ["/", "/invocations", "/similarity"])
def test_similarity_is_the_cosine(served: All, path: str) -> None:
    inputs = {"source_sentence": TEXT, "sentences": ["a key", TEXT, "b"]}
    response = served.post(path, inputs=inputs, parameters={})
    assert response.status_code == 200, response.text
    expected = [float(unit(TEXT) @ unit(text)) for text in inputs["sentences"]]
    np.testing.assert_allclose(response.json(), expected, rtol=1e-5, atol=1e-6)
    assert response.headers["x-compute-tokens"]


@pytest.mark.parametrize(
    ("inputs", "status", "kind", "message"),
    [
        ({"source_sentence": "a", "sentences": []}, 400, "Empty", "`inputs.sentences` cannot be empty"),
        ({"source_sentence": "a", "sentences": [""]}, 400, "Empty", "`inputs.sentences` cannot be empty"),
        ({"source_sentence": "a", "sentences": ["a"] * 33}, 422, "Validation", "batch size 33 > maximum allowed"),
        ({"source_sentence": "a", "sentences": [1]}, 422, "Validation", "must be a string, or a list of strings"),
        ({"source_sentence": 1, "sentences": ["a"]}, 422, "Validation", "inputs parameter"),
    ],
)
def test_similarity_refuses_what_it_cannot_compare(
    served: All, inputs: Any, status: int, kind: str, message: str
) -> None:
    for path in ("/similarity", "/"):
        response = served.post(path, inputs=inputs)
        assert (response.status_code, response.json()["error_type"]) == (status, kind), response.text
        assert message in response.json()["error"]


def test_translation_at_the_root(served: All) -> None:
    german = {"src_lang": "en_XX", "tgt_lang": "de"}
    assert served.post(inputs="Hello.", parameters=german).json() == [{"translation_text": "HELLO."}]
    both = served.post(inputs=["Hello.", "Good."], parameters={"src_lang": "en"}).json()  # de is the only target
    assert both == [{"translation_text": "HELLO."}, {"translation_text": "GOOD."}]
    response = served.post(inputs="Hello.", parameters={"src_lang": "xx", "tgt_lang": "de"})
    assert (response.status_code, response.json()["error"]) == (400, "xx is not supported")


def test_chat_and_completion_at_invocations(served: All) -> None:
    chat = served.post("/invocations", model="tgi", messages=[{"role": "user", "content": "a"}])
    assert chat.json()["choices"][0]["message"]["content"] == SAID
    assert served.post("/invocations", prompt="a").json()["choices"][0]["text"] == SAID
    refused = served.post("/invocations", prompt="a", suffix="b")
    assert refused.json()["error"]["param"] == "suffix"  # in the words of OpenAI's protocol


def test_a_body_that_fits_several_tasks_is_a_400_that_names_the_setting(served: All) -> None:
    response = served.post(inputs=TEXT)
    assert (response.status_code, response.json()["error_type"]) == (400, "validation")
    assert "fits several (embed, generate, translate)" in response.json()["error"]
    assert "POLYHEAD_ROOT_TASK" in response.json()["error"]
    assert "no loaded model answers such a body" in served.post(inputs={"image": "x"}).json()["error"]


def test_a_named_model_decides(served: All) -> None:
    assert len(served.post(inputs=TEXT, model="mini").json()[0]) == 8
    found = served.post(inputs=ENGLISH, model="en-de").json()  # its language is detected, and the target the only one
    assert found == [{"translation_text": ENGLISH.upper()}]


@pytest.mark.parametrize(
    ("without", "root_task", "task"),
    [
        (("embed", "translate"), "", "generate"),
        (("embed", "generate"), "", "translate"),
        (("generate", "translate"), "generate", "embed"),
        ((), "generate", "generate"),
        ((), "translate", "translate"),
    ],
)
def test_the_one_loaded_task_or_that_of_the_setting(without: tuple[str, ...], root_task: str, task: str) -> None:
    loaded = ModelRegistry(models_but(*without)(FakeEngine(tiny_tokenizer())))
    assert choose_answer({"inputs": TEXT}, loaded, Settings(root_task=root_task)).task == task


@pytest.mark.parametrize(
    ("body", "task"),
    [
        ({"query": "a", "texts": ["b"]}, "reranking"),
        ({"inputs": "a", "parameters": {"candidate_labels": ["b"]}}, "zero-shot classification"),
        ({"inputs": {"question": "a", "context": "b"}}, "question answering"),
        ({"inputs": "a", "parameters": {"aggregation_strategy": "none"}}, "token classification"),
    ],
)
def test_a_task_that_no_head_does_is_a_404_in_words(served: All, body: dict[str, Any], task: str) -> None:
    response = served.post(**body)
    assert response.status_code == 404
    assert response.json()["error"] == f"The body asks for {task}, which this server does not do"


def test_errors_at_the_root_are_in_the_words_of_the_head_that_answers(served: All) -> None:
    generated = served.post(inputs="a", parameters={"temperature": -1.0})
    assert (generated.status_code, generated.json()["error_type"]) == (422, "validation")
    embedded = served.post(inputs="", normalize=True)
    assert (embedded.status_code, embedded.json()["error_type"]) == (400, "Empty")
    served.translator.failure = ModelUnavailableError("dead")
    assert served.post(inputs="a", parameters={"tgt_lang": "de", "src_lang": "en"}).status_code == 503
    served.translator.failure = None


def test_vertex_gives_predictions(served: All) -> None:
    instances = [
        {"inputs": "a b", "parameters": {"return_full_text": False}},
        {"inputs": TEXT, "normalize": True},
        {"inputs": "Hello.", "parameters": {"src_lang": "en", "tgt_lang": "de"}},
        {"messages": [{"role": "user", "content": "a"}]},
    ]
    text, (vector,), translated, said = served.post("/vertex", instances=instances).json()["predictions"]
    assert (text, translated, said) == (SAID, "HELLO.", SAID)
    np.testing.assert_allclose(vector, unit(TEXT), rtol=1e-5)
    for wrong in ([], "a", ["a"], [{"inputs": "a", "stream": True}]):
        assert served.post("/vertex", instances=wrong).status_code in {400, 422}


def test_the_root_is_the_page_for_browsers_and_health_for_others(served: All) -> None:
    page = served.client.get("/", headers={"Accept": "text/html,*/*"})
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["vary"] == "Accept"
    for accept in ("*/*", "application/json", ""):
        response = served.client.get("/", headers={"Accept": accept})
        assert (response.status_code, response.json()) == (200, {"status": "ok"})


def test_texts_at_the_root_have_the_limits_of_the_head_that_answers(served: All) -> None:
    long = "a" * 100_001
    assert served.post(inputs=long, stream=False).status_code == 422
    assert served.post(inputs=long, normalize=True).status_code == 200  # cut, as /embed does


def test_a_server_that_translates_and_continues_texts() -> None:
    with running_all("embed") as found:
        response = found.post(inputs={"source_sentence": "a", "sentences": ["b"]})
        assert (response.status_code, response.json()["error_type"]) == (404, "NotFound")
        assert "No model for the task embed is loaded" in response.json()["error"]
        tokens = found.post("/tokenize", inputs="a b").json()
        (encoding,) = fallback_tokenizer().encodings(["a b"])
        assert [token["id"] for token in tokens] == encoding.ids
        assert found.post("/tokenize", inputs=["a b"]).json() == [tokens]
        found.translator.failure = ModelUnavailableError("dead")
        assert found.client.get("/").status_code == 503


def test_tokens_without_a_model_need_one_task_or_the_setting(served: All) -> None:
    response = served.post("/tokenize", inputs="a b")
    assert response.status_code == 400
    assert "tokens differ between the models for embed, generate" in response.json()["error"]
    assert served.post("/decode", ids=[5]).status_code == 400
    assert served.post("/tokenize", inputs="a b", model="mini").json()[0][0]["text"] == "<s>"


def test_an_unknown_root_task_stops_the_start() -> None:
    with pytest.raises(SettingsError, match="'embedding', allowed: embed, generate, translate"):
        check_root_task(Settings(root_task="embedding"))


@pytest.mark.parametrize("name", ["tgi", "TEI", "text-embeddings-inference", "dummy", "huggingface/tgi"])
def test_names_that_name_no_model_mean_the_one_of_the_task(served: All, name: str) -> None:
    assert served.post("/v1/embeddings", input="a", model=name).json()["model"] == "mini"
    assert served.post("/v1/completions", prompt="a", model=name).json()["model"] == "story"
    translated = served.post("/translate", q="Hello.", source="en", target="de", model=name)
    assert translated.json()["translatedText"] == "HELLO."


def test_a_name_that_looks_real_and_is_not_loaded_stays_a_404(served: All) -> None:
    for name in ("gpt-4o", "BAAI/bge-m3", "tgi-2"):
        assert served.post("/v1/embeddings", input="a", model=name).status_code == 404


def test_aliases_are_further_names_and_the_task_of_the_root_says_whose_tokens() -> None:
    with running_all(model_aliases="gpt-4o = story, text-embedding-3-small=mini", root_task="embed") as found:
        assert found.post("/tokenize", inputs="a b").json()[0][0]["text"] == "<s>"
        answer = found.post("/v1/completions", prompt="a", model="gpt-4o").json()
        assert answer["model"] == "story"
        assert found.post("/v1/embeddings", input="a", model="text-embedding-3-small").status_code == 200
        assert found.post("/v1/embeddings", input="a", model="gpt-4o").status_code == 400  # of another task
        assert found.client.get("/v1/models/gpt-4o").json()["id"] == "story"


def test_aliases_of_nothing_stop_the_start() -> None:
    model = fake_model(FakeEngine(tiny_tokenizer()), name="a")
    with pytest.raises(StartupError, match="'b' stands for 'c', which is not loaded; loaded are a"):
        ModelRegistry([model], {"b": "c"})
    with pytest.raises(StartupError, match="'a' is a loaded model's name"):
        ModelRegistry([model], {"a": "a"})
    assert ModelRegistry([model], {"b": "a"}).by_name("b") is model


def test_an_alias_can_take_a_name_that_names_no_model() -> None:
    models = [fake_embedder(FakeEmbeddingEngine(), name=name) for name in ("a", "b")]
    assert ModelRegistry(models, {"tei": "b"}).choose(EmbeddingModel, "tei").name == "b"
    assert ModelRegistry(models).choose(EmbeddingModel, "tei").name == "a"


def test_the_key_is_asked_for_at_the_root(serve: Serve) -> None:
    served: Running = serve(api_keys="one")
    body = {"inputs": ENGLISH}
    assert served.client.post("/", json=body).status_code == 401
    assert served.client.post("/", json=body, headers={"Authorization": "Bearer one"}).status_code == 200


def test_a_pair_of_claims_has_an_order() -> None:
    """A body with what two tasks have is for the first, whatever is loaded."""
    body = {"inputs": {"source_sentence": "a", "sentences": []}, "stream": False}
    assert choose_answer(body, ModelRegistry([]), Settings()).kind is EmbeddingModel
