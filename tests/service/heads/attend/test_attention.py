"""POST /attention: what is looked at, and what is shown of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from export.heads import Alignment
from model.tokenizer import BOS, EOS, language_tag
from service.engine.core.errors import ModelUnavailableError
from tests.service.attention_fakes import NUM_HEADS, NUM_LAYERS, heads_of, maps_of
from tests.service.embed_fakes import PROMPTS, embed_tokenizer
from tests.service.fakes import tiny_tokenizer
from tests.service.generation_fakes import MAX_TOTAL_TOKENS, SAID, says
from tests.service.heads.attend.conftest import MODELS, RunningAttention, ServeAttention

TEXT = "the house is old"


def weights(body: dict[str, Any], kind: str, name: str = "maps") -> Any:
    return np.array(body[name][kind]["weights"])


def texts(body: dict[str, Any], axis: str) -> list[str]:
    return [token["text"] for token in body[axis]["tokens"]]


def test_a_forced_translation_shows_cross_attention(attention: RunningAttention) -> None:
    response = attention.ask()
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    body = response.json()
    tokenizer = tiny_tokenizer()
    source = (tokenizer.token_id(language_tag("de")), *tokenizer.encode(TEXT), tokenizer.token_id(EOS))
    target = (tokenizer.token_id(BOS), *tokenizer.encode("a b c"))
    request = attention.engines["encoder_decoder"].requests[-1]
    assert (request.source_ids, request.target_ids) == (source, target)
    assert (body["model"], body["task"], body["text"]) == ("en-de", "translate", "a b c")
    assert list(body["maps"]) == ["cross"]
    assert body["maps"]["cross"]["shape"] == [2, NUM_HEADS, len(target), len(source)]
    for layer in range(NUM_LAYERS["cross"]):
        np.testing.assert_allclose(weights(body, "cross")[layer], heads_of("cross", layer, target, source), atol=5.1e-5)
    assert attention.translator.requests == []  # what is given is not translated


def test_tokens_have_ids_and_places(attention: RunningAttention) -> None:
    body = attention.ask().json()
    first, *middle, last = body["source"]["tokens"]
    assert (first["text"], first["special"], first["start"], first["end"]) == ("<2de>", True, None, None)
    assert (last["text"], last["special"]) == (EOS, True)
    assert [token["id"] for token in middle] == tiny_tokenizer().encode(TEXT)
    assert body["source"]["texts"] == [TEXT]
    assert all(TEXT[token["start"] : token["end"]] == token["text"] for token in middle)


def test_rows_of_the_decoder_say_what_they_read_and_what_they_chose(attention: RunningAttention) -> None:
    tokens = attention.ask().json()["target"]["tokens"]
    assert [token["text"] for token in tokens] == [BOS, "a", "b", "c"]
    assert [token["predicts"]["text"] for token in tokens] == ["a", "b", "c", EOS]


def test_the_models_own_translation_is_looked_at_and_told(attention: RunningAttention) -> None:
    body = attention.ask(target_text=None, beam_size=3).json()
    assert body["text"] == TEXT.upper()
    assert attention.translator.requests[-1].options.beam_size == 3
    request = attention.engines["encoder_decoder"].requests[-1]
    assert request.target_ids == (tiny_tokenizer().token_id(BOS), *tiny_tokenizer().encode(TEXT.upper()))
    spans = [token for token in body["target"]["tokens"] if not token["special"]]
    assert all(body["text"][token["start"] : token["end"]] == token["text"] for token in spans if token["text"] != "▁")
    attention.translator.requests.clear()


def test_the_language_can_be_found_out(attention: RunningAttention) -> None:
    body = attention.ask(q="Guten Morgen, mein Freund.", source="auto", target="en").json()
    assert texts(body, "source")[0] == "<2en>"


def test_an_encoder_reads_one_text_with_its_prompt(attention: RunningAttention) -> None:
    body = attention.ask("encoder", prompt_name="query").json()
    assert (body["model"], body["text"], list(body["maps"])) == ("mini", None, ["encoder"])
    assert "target" not in body
    assert body["source"]["texts"] == [PROMPTS["query"] + TEXT]
    (encoding,) = embed_tokenizer().encodings([PROMPTS["query"] + TEXT])
    assert [token["id"] for token in body["source"]["tokens"]] == encoding.ids
    assert body["maps"]["encoder"]["shape"] == [3, NUM_HEADS, len(encoding.ids), len(encoding.ids)]


def test_an_encoder_reads_a_pair(attention: RunningAttention) -> None:
    body = attention.ask("encoder", inputs=["the house", "a b"]).json()
    assert body["source"]["texts"] == ["the house", "a b"]
    indices = [token["text_index"] for token in body["source"]["tokens"] if not token["special"]]
    assert indices == sorted(indices)
    assert set(indices) == {0, 1}
    assert attention.engines["encoder"].requests[-1].token_type_ids is None  # the model knows none


def test_a_decoder_reads_a_prompt(attention: RunningAttention) -> None:
    body = attention.ask("decoder").json()
    tokens = body["target"]["tokens"]
    assert (tokens[0]["text"], tokens[0]["predicts"]["text"]) == (BOS, "the")
    assert tokens[-1]["predicts"] is None
    assert (body["text"], body["target"]["texts"]) == (None, [TEXT])
    cut = np.triu(weights(body, "decoder"), 1)
    assert not cut.any()
    assert attention.generator.requests == []


def test_a_decoder_goes_on_where_it_may(attention: RunningAttention) -> None:
    body = attention.ask("decoder", max_new_tokens=20).json()
    assert body["text"] == SAID
    assert body["target"]["texts"] == [TEXT + SAID]
    assert body["target"]["tokens"][-1]["predicts"]["text"] == EOS
    request = attention.engines["decoder"].requests[-1]
    assert request.target_ids is not None
    assert list(request.target_ids[-len(says(SAID)) :]) == says(SAID)
    cut = attention.ask("decoder", max_new_tokens=1).json()
    assert cut["target"]["tokens"][-1]["predicts"] is None
    assert attention.generator.num_running == 0
    attention.generator.requests.clear()


@pytest.mark.parametrize(("architecture", "kinds"), [("encoder_decoder", 3), ("encoder", 1), ("decoder", 1)])
def test_every_row_sums_to_one(attention: RunningAttention, architecture: str, kinds: int) -> None:
    for fields in ({}, {"aggregate": "mean"}, {"words": True}):
        body = attention.ask(architecture, kind="all", **fields).json()
        assert len(body["maps"]) == kinds
        for kind in body["maps"]:
            found = weights(body, kind)
            np.testing.assert_allclose(found.sum(-1), 1, atol=1e-4 * found.shape[-1])


def test_layers_and_heads_are_chosen(attention: RunningAttention) -> None:
    body = attention.ask(kind="encoder", layers=[2, 0, 2], heads=1).json()
    assert (body["maps"]["encoder"]["layers"], body["maps"]["encoder"]["heads"]) == ([2, 0], [1])
    request = attention.engines["encoder_decoder"].requests[-1]
    assert request.layers == (0, 2)
    maps = maps_of(request, "encoder_decoder")["encoder"]
    np.testing.assert_allclose(weights(body, "encoder")[:, 0], [maps[2][1], maps[0][1]], atol=5.1e-5)


def test_fields_may_come_as_a_form(attention: RunningAttention) -> None:
    form = {
        "q": TEXT,
        "source": "en",
        "target": "de",
        "target_text": "a",
        "layers": "0,1",
        "heads": "1",
        "norms": "true",
    }
    body = attention.client.post("/attention", data=form | {"alignment": "true"}).json()
    assert (body["maps"]["cross"]["layers"], body["maps"]["cross"]["heads"]) == ([0, 1], [1])
    assert "norms" in body
    assert "alignment" in body


@pytest.mark.parametrize("how", ["mean", "max"])
def test_heads_are_aggregated(attention: RunningAttention, how: str) -> None:
    body = attention.ask(aggregate=how).json()
    assert body["maps"]["cross"]["heads"] is None
    maps = maps_of(attention.engines["encoder_decoder"].requests[-1], "encoder_decoder")["cross"]
    expected = [getattr(maps[layer], how)(0, keepdims=True) for layer in (0, 1)]
    np.testing.assert_allclose(weights(body, "cross"), expected, atol=5.1e-5)


def test_rollout_starts_at_the_first_layer(attention: RunningAttention) -> None:
    body = attention.ask("encoder", aggregate="rollout", layers=[1]).json()
    request = attention.engines["encoder"].requests[-1]
    assert request.layers == (0, 1)
    maps = maps_of(request, "encoder")["encoder"]
    eye = np.eye(maps[0].shape[-1])
    flow = (maps[1].mean(0) + eye) / 2 @ (maps[0].mean(0) + eye) / 2
    np.testing.assert_allclose(weights(body, "encoder")[0, 0], flow, atol=5.1e-5)


def test_norms_have_the_shapes_of_the_maps(attention: RunningAttention) -> None:
    body = attention.ask(kind="all", norms=True).json()
    for kind in ("encoder", "decoder", "cross"):
        np.testing.assert_allclose(weights(body, kind, "norms"), 2 * weights(body, kind), atol=2e-4)


def test_words_are_sums_over_keys_and_means_over_queries(attention: RunningAttention) -> None:
    pieces = attention.ask("encoder", inputs="housing").json()
    body = attention.ask("encoder", inputs="housing", words=True).json()
    assert texts(body, "source") == [BOS, "housing", EOS]
    assert body["source"]["tokens"][1]["id"] is None
    found = weights(pieces, "encoder")
    assert found.shape[-1] > 3
    expected = found[..., 1:-1, 1:-1].sum(-1).mean(-1)
    np.testing.assert_allclose(weights(body, "encoder")[..., 1, 1], expected, atol=5e-4)


def plant(attention: RunningAttention, *planted: list[list[float]]) -> None:
    attention.engines["encoder_decoder"].planted = [np.array(rows, np.float32) for rows in planted]


# "a b" to "c d": <2de> a b </s> across, <s> c d down. "c" is chosen while looking at "b", "d" while looking at "a".
CROSSED = [[0.5, 0.1, 0.4, 0.0], [0.0, 0.6, 0.4, 0.0], [0.0, 0.0, 0.1, 0.9]]
PAIR = {"q": "a b", "target_text": "c d"}


def test_words_are_aligned(attention: RunningAttention) -> None:
    plant(attention, CROSSED)
    found = attention.ask(**PAIR, alignment=True).json()["alignment"]
    assert found == {
        "links": "0-1 1-0",
        "source_words": [{"text": "a", "start": 0, "end": 1}, {"text": "b", "start": 2, "end": 3}],
        "target_words": [{"text": "c", "start": 0, "end": 1}, {"text": "d", "start": 2, "end": 3}],
        "method": "argmax",
        "layer": 1,
        "head": "mean",
        "shifted": False,
    }


def test_words_are_aligned_by_the_shifted_rows(attention: RunningAttention) -> None:
    plant(attention, CROSSED)
    assert attention.ask(**PAIR, alignment="shifted").json()["alignment"]["links"] == "0-0 1-1"


def test_both_directions_are_asked_for_a_symmetrization(attention: RunningAttention) -> None:
    # The other way it is said that "a" looks at "d" and "b" at "d" too.
    plant(attention, CROSSED, [[0.0, 0.2, 0.8, 0.0], [0.0, 0.4, 0.6, 0.0], [1.0, 0.0, 0.0, 0.0]])
    found = attention.ask(**PAIR, alignment="intersection").json()["alignment"]
    assert (found["links"], found["method"]) == ("0-1", "intersection")
    tokenizer = tiny_tokenizer()
    backward = attention.engines["encoder_decoder"].requests[-1]
    assert backward.source_ids == (
        tokenizer.token_id("<2en>"),
        *tokenizer.encode("c d"),
        tokenizer.token_id(EOS),
    )
    assert backward.target_ids == (tokenizer.token_id(BOS), *tokenizer.encode("a b"))
    assert backward.layers == (1,)


def test_the_bundle_names_the_best_way_to_align(serve_attention: ServeAttention) -> None:
    served = serve_attention(Alignment(layer=0, head=1, shifted=True, aggregate="none"))
    found = served.ask(alignment=True, layers=[1]).json()["alignment"]
    assert (found["layer"], found["head"], found["shifted"]) == (0, 1, True)
    assert served.engines["encoder_decoder"].requests[-1].layers == (0, 1)
    found = served.ask(alignment={"layer": 1, "head": 0, "shifted": False, "method": "union"}).json()["alignment"]
    assert (found["layer"], found["head"], found["shifted"], found["method"]) == (1, 0, False, "union")


def test_a_symmetrization_needs_both_directions(serve_attention: ServeAttention) -> None:
    served = serve_attention(directions=[("en", "de")])
    message = served.error(alignment="union")
    assert "does not translate from German to English. Allowed: argmax, shifted" in message
    assert served.engines["encoder_decoder"].requests == []


@pytest.mark.parametrize(
    ("architecture", "fields", "message"),
    [
        ("encoder_decoder", {"kind": "sideways"}, "kind parameter: Input should be 'encoder', 'decoder', 'cross'"),
        ("encoder", {"kind": "cross"}, "`kind` is 'cross', but the model mini has the attention: encoder"),
        ("encoder", {"layers": [3]}, "allowed are 0 to 2"),
        ("encoder", {"layers": []}, "layers parameter"),
        ("encoder", {"layers": "one"}, "layers parameter"),
        ("encoder", {"heads": [2]}, "allowed are 0 to 1"),
        ("encoder", {"aggregate": "median"}, "'none', 'mean', 'max' or 'rollout'"),
        ("encoder_decoder", {"aggregate": "rollout"}, "kind encoder or decoder"),
        ("encoder_decoder", {"alignment": "best"}, "'argmax', 'intersection', 'union' or 'grow-diag-final-and'"),
        ("encoder_decoder", {"alignment": {"layer": 7}}, "the layer 7, but the model en-de has 2"),
        ("encoder", {"alignment": True}, "`alignment` goes with `q`, but the request has `inputs`"),
        ("encoder", {"inputs": ["a", "b", "c"]}, "inputs parameter has 3 values, allowed: 2"),
        ("encoder", {"prompt_name": "nothing"}, "Allowed: document, query"),
        ("encoder", {"inputs": ["a", "b"], "prompt_name": "query"}, "`inputs` is a pair"),
        ("encoder", {"prompt": "a"}, "Given: inputs, prompt"),
        ("encoder", {"inputs": None}, "Given: none"),
        ("encoder_decoder", {"beam_size": 2}, "`beam_size` is for the model's own translation"),
        ("decoder", {"max_new_tokens": -1}, "max_new_tokens parameter"),
        ("encoder_decoder", {"format": "gif"}, "format parameter: Input should be 'json'"),
    ],
)
def test_what_cannot_be_is_refused(
    attention: RunningAttention, architecture: str, fields: dict[str, Any], message: str
) -> None:
    num_before = len(attention.engines[architecture].requests)
    assert message in attention.error(architecture, **fields)
    assert len(attention.engines[architecture].requests) == num_before


@pytest.mark.parametrize(
    ("architecture", "fields", "status", "message"),
    [
        ("encoder_decoder", {"q": ""}, 400, "`q` cannot be empty"),
        ("encoder_decoder", {"target_text": ""}, 400, "`target_text` cannot be empty"),
        ("encoder", {"inputs": ["a", ""]}, 400, "`inputs` cannot be empty"),
        ("encoder_decoder", {"target": "zz"}, 400, "zz is not supported"),
        ("encoder_decoder", {"target": None}, 400, "missing target parameter"),
        ("encoder", {"model": "en-de"}, 400, "is for the task translate, not for embed"),
        ("encoder", {"model": "nobody"}, 404, "is not loaded, choose from: "),
        ("encoder_decoder", {"target": "fr"}, 404, "The bundle of the model blind has no attention graph"),
    ],
)
def test_other_faults_have_their_statuses(
    attention: RunningAttention, architecture: str, fields: dict[str, Any], status: int, message: str
) -> None:
    assert message in attention.error(architecture, status, **fields)


def test_too_many_tokens_are_refused_with_their_number(serve_attention: ServeAttention) -> None:
    served = serve_attention(max_attention_tokens=8)
    assert "`q` has 12 tokens, special ones included, allowed: 8" in served.error(q="a b c d e a b c d e")
    assert "`target_text` has 11 tokens" in served.error(q="a", target_text="a b c d e a b c d e")
    assert "`inputs` has 12 tokens" in served.error("encoder", inputs="a b c d e a b c d e")
    assert "together 9, allowed: 8" in served.error("decoder", prompt="a b c", max_new_tokens=5)
    assert "has 3000 characters, allowed: 2000" in served.error("encoder", inputs="a" * 3000)
    served.translator.translate = lambda text: "a b c d e a b c d e"
    assert "`the translation` has 11 tokens" in served.error(q="a", target_text=None)
    assert all(not engine.requests for engine in served.engines.values())


def test_a_decoders_own_limit_holds_too(attention: RunningAttention) -> None:
    message = attention.error("decoder", max_new_tokens=MAX_TOTAL_TOKENS)
    assert f"allowed: {MAX_TOTAL_TOKENS}" in message


def test_too_many_numbers_are_refused_before_any_work(serve_attention: ServeAttention) -> None:
    served = serve_attention(max_attention_values=100)
    message = served.error(q="a b c d e a b", target_text="a b c d e")
    assert "the maps would hold 216 numbers (cross 2 layers x 2 maps x 6 x 9), allowed: 100" in message
    message = served.error("encoder", inputs="a b c d e", norms=True)
    assert "588 numbers (encoder 3 layers x 2 maps x 7 x 7, twice for the norms)" in message
    message = served.error("decoder", prompt="a b c d e")
    assert "144 numbers (decoder 2 layers x 2 maps x 6 x 6)" in message
    assert all(not engine.requests for engine in served.engines.values())


def test_too_many_numbers_of_an_own_translation_are_refused_before_its_maps(serve_attention: ServeAttention) -> None:
    served = serve_attention(max_attention_values=100)
    # With its begin token alone a translation has 2 x 2 x 1 x 9 numbers, so it is made; then it is too long.
    assert "allowed: 100" in served.error(q="a b c d e a b", target_text=None)
    assert len(served.translator.requests) == 1
    assert served.engines["encoder_decoder"].requests == []
    assert "allowed: 100" in served.error(q="a b c d e a b", target_text=None, kind="encoder")
    assert len(served.translator.requests) == 1


@pytest.mark.parametrize(
    ("spoilt", "fault"),
    [
        (np.full((2, 1, 1), 1.0, np.float32), "has the shape (1, 1), not"),
        (np.full((2, 3, 3), 0.5, np.float32), "a row differs from the sum of one by 0.5"),
        (np.full((2, 3, 3), np.nan, np.float32), "not a finite number"),
    ],
)
def test_maps_that_cannot_be_right_are_the_models_fault(
    serve_attention: ServeAttention, spoilt: Any, fault: str
) -> None:
    served = serve_attention()
    served.engines["encoder"].spoil = spoilt
    assert fault in served.error("encoder", 424, inputs="a")


@pytest.mark.parametrize("architecture", list(MODELS))
def test_a_full_line_is_429(serve_attention: ServeAttention, architecture: str) -> None:
    served = serve_attention()
    served.engines[architecture].max_waiting = 0
    response = served.ask(architecture)
    assert (response.status_code, response.headers["retry-after"]) == (429, "3")


def test_a_dead_engine_is_503(serve_attention: ServeAttention) -> None:
    served = serve_attention()
    served.engines["encoder"].failure = ModelUnavailableError("gone")
    assert served.error("encoder", 503) == "The model is not available"


def test_the_engines_live_as_long_as_the_server() -> None:
    from tests.service.heads.attend.conftest import running_attention

    with running_attention() as served:
        engines = list(served.engines.values())
        assert all(engine.calls == ["start"] for engine in engines)
        metrics = served.client.get("/metrics").text
        assert 'model="en-de/attention"' in metrics
    assert all(engine.calls == ["start", "drain", "close"] for engine in engines)


def test_openapi_describes_the_body_and_every_format(attention: RunningAttention) -> None:
    entry = attention.client.get("/openapi.json").json()["paths"]["/attention"]["post"]
    assert "$defs" not in str(entry)
    properties = entry["requestBody"]["content"]["application/json"]["schema"]["properties"]
    (wishes,) = (choice for choice in properties["alignment"]["anyOf"] if choice.get("type") == "object")
    assert wishes["properties"]["method"]["enum"] == ["argmax", "intersection", "union", "grow-diag-final-and"]
    formats = {"application/json", "application/x-npz", "image/png", "image/svg+xml", "text/html"}
    assert set(entry["responses"]["200"]["content"]) == formats


def test_a_key_is_needed_where_keys_are(serve_attention: ServeAttention) -> None:
    served = serve_attention(api_keys="secret")
    assert served.ask("encoder").status_code == 400
    assert served.ask("encoder", api_key="secret").status_code == 200


@pytest.mark.parametrize("name", ["layers", "heads"])
def test_all_is_the_same_as_no_choice(attention: RunningAttention, name: str) -> None:
    assert attention.ask("encoder", **{name: "all"}).json() == attention.ask("encoder").json()
