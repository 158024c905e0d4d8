from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.service.conftest import Running, Serve
from tests.service.fakes import MAX_SOURCE_TOKENS, FakeEngine, fake_model


def error(response: httpx.Response) -> str:
    body = response.json()
    assert set(body) == {"error", "error_type"}
    return str(body["error"])


def test_translates_a_text_as_json(server: Running) -> None:
    response = server.translate(q="Good morning.")
    assert response.status_code == 200
    assert response.json() == {"translatedText": "GOOD MORNING."}


FIELDS = {"q": "Good morning.", "source": "en", "target": "de", "format": "text"}


@pytest.mark.parametrize(
    "encoded",
    [{"data": FIELDS}, {"files": {name: (None, value) for name, value in FIELDS.items()}}, {"params": FIELDS}],
    ids=["urlencoded", "multipart", "query string"],
)
def test_translates_forms_and_query_strings(server: Running, encoded: dict[str, Any]) -> None:
    response = server.client.post("/translate", **encoded)
    assert response.json() == {"translatedText": "GOOD MORNING."}


@pytest.mark.parametrize("kind", ["json", "data"])
def test_fields_of_the_body_win_over_the_query(server: Running, kind: str) -> None:
    body: dict[str, Any] = {kind: {"q": "body", "target": "de"}}
    response = server.client.post("/translate", params={"q": "query", "source": "en"}, **body)
    assert response.json() == {"translatedText": "BODY"}


@pytest.mark.parametrize("word", ["a", "house", "\U0001f600 x"])
def test_a_sentence_is_cut_so_that_its_pieces_fit_with_the_tokens_around_them(server: Running, word: str) -> None:
    # Of every length around the limit: the stand-in refuses, as the engine does, what has a token too many.
    for count in range(40, 80):
        text = " ".join([word] * count)
        assert server.translate(q=text).json()["translatedText"].split() == text.upper().split()
    longest = max(len(request.source_ids or ()) for request in server.engine.requests)
    assert longest == MAX_SOURCE_TOKENS


def test_a_list_gives_a_list_in_its_order(server: Running) -> None:
    texts = ["One.", "", "Two.", "\U0001f600", "Three."]
    assert server.translate(q=texts).json() == {"translatedText": ["ONE.", "", "TWO.", "\U0001f600", "THREE."]}


def test_a_list_of_one_is_still_a_list(server: Running) -> None:
    assert server.translate(q=["One."]).json() == {"translatedText": ["ONE."]}


def test_unknown_fields_and_nulls_are_accepted(server: Running) -> None:
    nulls = dict.fromkeys(
        ("format", "alternatives", "api_key", "beam_size", "length_penalty", "max_new_tokens", "model")
    )
    assert server.translate(**nulls, surprise={"a": [1]}).json() == {"translatedText": "HELLO."}


def test_language_codes_are_case_insensitive(server: Running) -> None:
    assert server.translate(source="EN", target="De").json() == {"translatedText": "HELLO."}


def test_the_source_language_as_target_gives_the_text_back(server: Running) -> None:
    assert server.translate(q="As it is.", target="en").json() == {"translatedText": "As it is."}


def test_auto_names_the_detected_language(server: Running) -> None:
    body = server.translate(q="Wo ist denn der Schlüssel zu diesem Haus?", source="AUTO", target="en").json()
    assert body["translatedText"] == "WO IST DENN DER SCHLÜSSEL ZU DIESEM HAUS?"
    assert body["detectedLanguage"]["language"] == "de"
    assert 50 < body["detectedLanguage"]["confidence"] <= 100


def test_auto_detects_each_text_of_a_list(server: Running) -> None:
    body = server.translate(q=["Where is my old friend now?", "Wo ist mein alter Freund?"], source="auto").json()
    assert [found["language"] for found in body["detectedLanguage"]] == ["en", "de"]
    assert body["translatedText"] == ["WHERE IS MY OLD FRIEND NOW?", "Wo ist mein alter Freund?"]


def test_auto_without_anything_to_detect(server: Running) -> None:
    body = server.translate(q="\U0001f600 123", source="auto").json()
    assert body == {"translatedText": "\U0001f600 123", "detectedLanguage": {"confidence": 0.0, "language": "en"}}


def test_auto_refuses_a_language_without_a_model(server: Running) -> None:
    response = server.translate(q="Je voudrais savoir où se trouve la bibliothèque de la ville.", source="auto")
    assert (response.status_code, error(response)) == (400, "fr is not supported")


@pytest.mark.parametrize("text", ["\U0001f600\U0001f389", "?!...", "12 + 30 = 42", "   ", "\n\n"])
def test_text_without_words_comes_back_as_it_is(server: Running, text: str) -> None:
    before = len(server.engine.requests)
    assert server.translate(q=text).json() == {"translatedText": text}
    assert len(server.engine.requests) == before


def test_line_breaks_and_paragraphs_are_kept(server: Running) -> None:
    text = "One line.\nAnother line.\n\n  A paragraph.\r\nEnd."
    assert server.translate(q=text).json() == {"translatedText": text.upper()}


def test_long_text_is_split_into_sentences_and_joined(server: Running) -> None:
    text = " ".join(f"This is sentence number {number} of a long text." for number in range(300))
    before = len(server.engine.requests)
    assert server.translate(q=text).json() == {"translatedText": text.upper()}
    assert len(server.engine.requests) - before >= 300
    assert all(request.num_tokens <= 64 for request in server.engine.requests)


def test_alternatives_differ_from_the_best_and_each_other(server: Running) -> None:
    body = server.translate(q="Good morning", alternatives=2).json()
    assert body == {"translatedText": "GOOD MORNING", "alternatives": ["GOOD MORNING!", "GOOD MORNING!!"]}
    assert server.engine.requests[-1].options.beam_size == 3


def test_alternatives_of_a_list(server: Running) -> None:
    body = server.translate(q=["A b", "\U0001f600"], alternatives="1").json()
    assert body == {"translatedText": ["A B", "\U0001f600"], "alternatives": [["A B!"], []]}


def test_no_alternatives_unless_asked_for(server: Running) -> None:
    for none in (0, -1):
        assert "alternatives" not in server.translate(alternatives=none).json()


@pytest.mark.parametrize("encoding", ["urlencoded", "multipart"])
def test_line_breaks_of_forms_are_those_of_texts(server: Running, encoding: str) -> None:
    """A form writes each as CRLF, whatever its text had."""
    fields = {"q": "Good.\r\n\r\nBad.", "source": "en", "target": "de"}
    sent = {"data": fields} if encoding == "urlencoded" else {"files": {key: (None, fields[key]) for key in fields}}
    answer = server.client.post("/translate", **sent).json()
    assert answer["translatedText"] == "GOOD.\n\nBAD."


def test_a_lost_number_is_translated_again_in_pieces(serve: Serve) -> None:
    served = serve()
    served.engine.translate = lambda text: text.upper().replace("42", "")
    assert served.translate(q="There are 42 houses here").json() == {"translatedText": "THERE ARE 42 HOUSES HERE"}


def test_own_options_reach_the_engine(server: Running) -> None:
    server.translate(beam_size=5, length_penalty=0.6, max_new_tokens=7, model="en-de")
    options = server.engine.requests[-1].options
    assert (options.beam_size, options.length_penalty, options.max_new_tokens) == (5, 0.6, 7)


def test_own_options_come_as_text_from_forms(server: Running) -> None:
    fields = {"q": "A", "source": "en", "target": "de", "beam_size": "3", "length_penalty": "0.5"}
    assert server.client.post("/translate", data=fields).status_code == 200
    assert server.engine.requests[-1].options.beam_size == 3


def test_defaults_are_the_models(server: Running) -> None:
    server.translate(q="Good morning.")
    request = server.engine.requests[-1]
    assert (request.options.beam_size, request.options.num_hypotheses) == (2, 1)
    assert request.options.max_new_tokens < 128
    assert request.deadline is not None


def test_requests_carry_the_target_tag_and_the_end(server: Running) -> None:
    server.translate(q="a", source="de", target="en")
    tokenizer = fake_model(server.engine).tokenizer
    input_ids = server.engine.requests[-1].source_ids or ()
    assert (input_ids[0], input_ids[-1]) == (tokenizer.token_id("<2en>"), tokenizer.token_id("</s>"))


def test_html_keeps_its_tags(server: Running) -> None:
    body = server.translate(q="<p>Good <b>morning</b></p>", format="html").json()
    assert body["translatedText"].startswith("<p>")
    assert "GOOD" in body["translatedText"]


@pytest.mark.parametrize("name", ["q", "source", "target"])
@pytest.mark.parametrize("value", [None, ""])
def test_a_missing_parameter_is_named(server: Running, name: str, value: str | None) -> None:
    response = server.translate(**{name: value})
    assert (response.status_code, error(response)) == (400, f"Invalid request: missing {name} parameter")


def test_an_empty_list_is_a_missing_parameter(server: Running) -> None:
    assert error(server.translate(q=[])) == "Invalid request: missing q parameter"


def test_an_empty_post_misses_q(server: Running) -> None:
    assert error(server.client.post("/translate")) == "Invalid request: missing q parameter"


@pytest.mark.parametrize("fields", [{"source": "zz"}, {"target": "zz"}])
def test_an_unknown_language_is_refused(server: Running, fields: dict[str, str]) -> None:
    response = server.translate(**fields)
    assert (response.status_code, error(response)) == (400, "zz is not supported")


def test_an_unknown_format_is_refused(server: Running) -> None:
    assert error(server.translate(format="rtf")) == "rtf format is not supported"


def test_an_unknown_model_is_refused(server: Running) -> None:
    assert error(server.translate(model="x")) == "Invalid request: model 'x' is not loaded, choose from: en-de"


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"alternatives": 8}, "Invalid request: alternatives parameter must be <= 7"),
        ({"alternatives": -2}, "alternatives"),
        ({"alternatives": "many"}, "Given: 'many'"),
        ({"beam_size": 0}, "beam_size"),
        ({"beam_size": 9}, "beam_size parameter must be <= 8. Given: 9"),
        ({"beam_size": 1.5}, "beam_size"),
        ({"length_penalty": -1}, "length_penalty"),
        ({"length_penalty": "nan"}, "length_penalty"),
        ({"max_new_tokens": 129}, "max_new_tokens parameter must be <= 128. Given: 129"),
        ({"q": 5}, "q parameter must be a string"),
        ({"q": ["a", 5]}, "q parameter must be a string"),
        ({"q": {"a": 1}}, "q parameter must be a string"),
        ({"source": ["en"]}, "source parameter must be a string"),
        ({"source": 3}, "source parameter must be a string"),
        ({"model": 3}, "model"),
    ],
)
def test_a_value_that_cannot_be_is_named(server: Running, fields: dict[str, Any], part: str) -> None:
    response = server.translate(**fields)
    assert response.status_code == 400
    assert part in error(response)


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"q": ' + b"9" * 5_000 + b"}",
        b'{"q": "\\ud83d", "source": "en", "target": "de"}',
        b'{"q": "\xed\xa0\xbd", "source": "en", "target": "de"}',
    ],
    ids=["cut", "list", "null", "text", "bytes", "deep", "huge number", "half escape", "half character"],
)
def test_invalid_json_is_refused(server: Running, body: bytes) -> None:
    response = server.client.post("/translate", content=body, headers={"Content-Type": "application/json"})
    assert (response.status_code, error(response)) == (400, "Invalid JSON format")


def test_a_paired_escape_is_one_character(server: Running) -> None:
    body = b'{"q": "\\ud83d\\ude00", "source": "en", "target": "de"}'
    response = server.client.post("/translate", content=body, headers={"Content-Type": "application/json"})
    assert response.json() == {"translatedText": "\U0001f600"}


def test_a_body_of_another_type_is_refused(server: Running) -> None:
    response = server.client.post("/translate", content=b"<q/>", headers={"Content-Type": "text/xml"})
    assert response.status_code == 400
    assert "'text/xml' is not supported, use application/json" in error(response)


def test_a_broken_multipart_form_is_refused(server: Running) -> None:
    headers = {"Content-Type": "multipart/form-data"}
    response = server.client.post("/translate", content=b"--x", headers=headers)
    assert response.status_code == 400
    assert error(response).startswith("Invalid request: the form cannot be read")


def test_a_repeated_form_field_is_no_list(server: Running) -> None:
    response = server.client.post("/translate", data={"q": ["One.", "Two."], "source": "en", "target": "de"})
    assert response.json() == {"translatedText": "TWO."}


def test_text_limit(serve: Serve) -> None:
    served = serve(max_text_characters=10)
    assert served.translate(q="x" * 10).status_code == 200
    response = served.translate(q="x" * 11)
    assert (response.status_code, error(response)) == (400, "Invalid request: request (11) exceeds text limit (10)")
    assert error(served.translate(q=["x" * 6, "y" * 6])) == "Invalid request: request (12) exceeds text limit (10)"


def test_batch_limit(serve: Serve) -> None:
    served = serve(max_batch_texts=2)
    assert served.translate(q=["a", "b"]).status_code == 200
    response = served.translate(q=["a", "b", "c"])
    assert (response.status_code, error(response)) == (400, "Invalid request: request (3) exceeds text limit (2)")


def test_a_pair_that_no_model_translates(serve: Serve) -> None:
    def models(engine: FakeEngine) -> list[Any]:
        return [fake_model(engine, name="a"), fake_model(engine, name="b", directions=[("en", "fr")])]

    served = serve(models=models)
    response = served.translate(source="fr", target="de")
    expected = "German (de) is not available as a target language from French (fr)"
    assert (response.status_code, error(response)) == (400, expected)
    assert served.translate(source="en", target="fr").json() == {"translatedText": "HELLO."}
    assert error(served.translate(model="b")) == "German (de) is not available as a target language from English (en)"


def test_messages_do_not_repeat_a_novel(server: Running) -> None:
    assert len(error(server.translate(source="z" * 10_000))) < 200


@pytest.mark.parametrize("value", [[1], {"a": 1}, 7, "docx"])
def test_a_format_that_is_none_is_refused(server: Running, value: object) -> None:
    response = server.translate(format=value)
    assert response.status_code == 400
    assert response.json()["error"].endswith("format is not supported")


def test_a_text_that_could_not_be_finished_is_refused_at_once(serve: Serve) -> None:
    served = serve(request_timeout_seconds=20)
    served.engine.seconds_per_token = 1.0
    text = "Good morning, my friend. " * 40
    response = served.translate(q=text)
    assert response.status_code == 400
    assert "seconds at the speed that was measured last, and a request may take 20: send it in parts" in error(response)
    assert not served.engine.requests
    served.engine.seconds_per_token = 40 / (2 * 8 * 40 + 1000)
    assert served.translate(q=text).status_code == 200
    assert served.translate(q="Good morning.").status_code == 200
