"""Our own fields of POST /translate: a forced prefix, sampling, and a stream of sentences."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from service.engine.core.errors import InvalidOutputError, OverloadedError
from service.engine.decode.sampling.options import SamplingOptions
from tests.service.conftest import Running, Serve, wait_until
from tests.service.fakes import tiny_tokenizer

TEXT = "Good morning.  The house is old!\n- Where is 1 key?\n"


def refusal(response: httpx.Response) -> str:
    assert response.status_code == 400, response.text
    body = response.json()
    assert body["error_type"] == "validation"
    return str(body["error"])


def events(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    blocks = response.text.split("\n\n")
    assert blocks.pop() == ""
    return [json.loads(block.removeprefix("data:")) for block in blocks]


# Forced prefixes


def prompts(server: Running, count: int) -> list[tuple[int, ...]]:
    """What the last `count` requests of the engine begin with, after the begin token."""
    return [request.prompt_ids[1:] for request in server.engine.requests[-count:]]


def test_the_first_sentence_alone_begins_with_the_prefix(server: Running) -> None:
    prefix = "Guten Tag,"
    assert server.translate(q=TEXT, target_prefix=prefix).json() == {"translatedText": f"{prefix} {TEXT.upper()}"}
    assert prompts(server, 3) == [tuple(tiny_tokenizer().encode(prefix)), (), ()]


def test_a_list_of_texts_has_a_list_of_prefixes(server: Running) -> None:
    answer = server.translate(q=["One.", "Two.", "Three."], target_prefix=["Eins", "", "Drei"])
    assert answer.json() == {"translatedText": ["Eins ONE.", "TWO.", "Drei THREE."]}


def test_alternatives_begin_with_the_prefix_too(server: Running) -> None:
    body = server.translate(q="Good", target_prefix="Sehr", alternatives=1).json()
    assert body == {"translatedText": "Sehr GOOD", "alternatives": ["Sehr GOOD!"]}


def test_a_sentence_with_a_prefix_is_not_cut_around_what_it_lost(serve: Serve) -> None:
    served = serve()
    served.engine.translate = lambda text: text.upper().replace("42", "")
    body = served.translate(q="There are 42 houses. There are 42 keys.", target_prefix="Es").json()
    assert body == {"translatedText": "Es THERE ARE  HOUSES. THERE ARE 42 KEYS."}


def test_a_prefix_takes_its_share_of_the_longest_translation(server: Running) -> None:
    num_prefix_tokens = len(tiny_tokenizer().encode("a b c"))
    assert server.translate(target_prefix="a b c", max_new_tokens=128).status_code == 200
    assert server.engine.requests[-1].options.max_new_tokens == 128 - num_prefix_tokens


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"target_prefix": "a", "format": "html"}, "target_prefix parameter does not go with the format html"),
        ({"target_prefix": ["a"]}, "must be a string for a text, and a list of strings for a list. Given: ['a']"),
        ({"q": ["A", "B"], "target_prefix": "a"}, "must be a string for a text, and a list of strings for a list"),
        ({"q": ["A", "B"], "target_prefix": ["a"]}, "target_prefix parameter has 1 values, but q has 2"),
        ({"q": "12:30", "target_prefix": "a"}, "target_prefix parameter: the text has nothing to translate"),
        ({"target": "en", "target_prefix": "a"}, "the text is in the target language (en) already"),
        ({"target_prefix": " ".join("a" * 128)}, "target_prefix parameter has 128 tokens, allowed: at most 127"),
        ({"target_prefix": 7}, "target_prefix parameter"),
    ],
)
def test_prefixes_that_cannot_be(server: Running, fields: dict[str, Any], message: str) -> None:
    assert message in refusal(server.translate(**fields))


@pytest.mark.parametrize("name", ["target_prefix", "temperature", "top_k", "top_p", "seed", "stream"])
def test_a_file_takes_none_of_these(server: Running, name: str) -> None:
    data = {"source": "en", "target": "de", name: "1"}
    answer = server.client.post("/translate_file", data=data, files={"file": ("a.txt", b"One.")})
    assert refusal(answer) == f"Invalid request: {name} parameter does not go with a file. Given: '1'"


# Sampling


def test_sampling_reaches_the_engine(server: Running) -> None:
    assert server.translate(q="One. Two.", temperature=0.7, top_k=10, top_p=0.9, seed=5).status_code == 200
    expected = SamplingOptions(do_sample=True, temperature=0.7, top_k=10, top_p=0.9, seed=5)
    assert [request.sampling for request in server.engine.requests[-2:]] == [expected] * 2
    assert [request.options.beam_size for request in server.engine.requests[-2:]] == [1, 1]  # the model's own is 2


@pytest.mark.parametrize("fields", [{}, {"seed": 5}, {"temperature": None}])
def test_nothing_is_drawn_unless_it_is_asked_for(server: Running, fields: dict[str, Any]) -> None:
    assert server.translate(**fields).status_code == 200
    assert server.engine.requests[-1].sampling == SamplingOptions()
    assert server.engine.requests[-1].options.beam_size == 2


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"temperature": 1, "beam_size": 3}, "beam_size parameter does not go with sampling (temperature). Given: 3"),
        ({"top_k": 5, "alternatives": 1}, "alternatives parameter does not go with sampling (top_k). Given: 1"),
        ({"temperature": 0}, "temperature parameter: Input should be greater than 0. Given: 0"),
        ({"top_p": 1.5}, "top_p parameter: Input should be less than 1"),
        ({"top_k": 0}, "top_k parameter: Input should be greater than 0"),
        ({"top_p": 0.5, "seed": -1}, "seed parameter: Input should be greater than or equal to 0"),
    ],
)
def test_samplings_that_cannot_be(server: Running, fields: dict[str, Any], message: str) -> None:
    assert message in refusal(server.translate(**fields))


# Streams


def test_a_stream_has_an_event_for_each_sentence_and_then_the_whole(server: Running) -> None:
    *sentences, last = events(server.translate(q=TEXT, stream=True))
    assert sentences == [
        {"index": 0, "text": "GOOD MORNING."},
        {"index": 1, "text": "  THE HOUSE IS OLD!"},
        {"index": 2, "text": "\n- WHERE IS 1 KEY?\n"},
    ]
    assert last == server.translate(q=TEXT).json() == {"translatedText": TEXT.upper()}


def test_a_long_text_streams_as_it_is_translated_whole(server: Running) -> None:
    text = " ".join(f"This is sentence number {number} of a long text." for number in range(300))
    *sentences, last = events(server.translate(q=text, stream=True))
    assert [event["index"] for event in sentences] == list(range(300))
    assert "".join(event["text"] for event in sentences) == last["translatedText"] == text.upper()


def test_a_lost_number_of_a_streamed_sentence_is_translated_again_in_pieces(serve: Serve) -> None:
    served = serve()
    served.engine.translate = lambda text: text.upper().replace("42", "")
    text = "One. There are 42 houses here. Two."
    assert events(served.translate(q=text, stream=True))[-1] == served.translate(q=text).json()


def test_html_and_forms_are_streamed_too(server: Running) -> None:
    fields = {"q": "<p>Good morning. My friend.</p>", "source": "en", "target": "de", "format": "html"}
    *sentences, last = events(server.client.post("/translate", data=fields | {"stream": "true"}))
    assert len(sentences) == 2
    assert last == server.client.post("/translate", data=fields).json()


def test_a_stream_names_the_detected_language(server: Running) -> None:
    fields = {"q": "Wo ist denn der Schlüssel zu diesem Haus?", "source": "auto", "target": "en"}
    assert events(server.translate(**fields, stream=True))[-1] == server.translate(**fields).json()


@pytest.mark.parametrize("fields", [{"q": "12:30"}, {"q": "As it is.", "target": "en"}])
def test_a_text_without_work_is_one_event_and_the_whole(server: Running, fields: dict[str, str]) -> None:
    text = fields["q"]
    assert events(server.translate(**fields, stream=True)) == [{"index": 0, "text": text}, {"translatedText": text}]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"q": ["A"]}, "stream parameter does not go with a list of texts. Given: True"),
        ({"alternatives": 1}, "alternatives parameter does not go with stream. Given: 1"),
        ({"target": "zz"}, "zz is not supported"),
        ({"beam_size": 99}, "beam_size parameter must be <= 8. Given: 99"),
    ],
)
def test_what_is_wrong_before_a_stream_begins_is_json(server: Running, fields: dict[str, Any], message: str) -> None:
    assert message in refusal(server.translate(stream=True, **fields))


def test_a_full_queue_is_a_429_before_a_stream_begins(serve: Serve) -> None:
    served = serve()
    served.engine.failure = OverloadedError("full", retry_after_seconds=3)
    answer = served.translate(stream=True)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "3")
    assert answer.json()["error_type"] == "overloaded"


def test_an_error_after_the_beginning_is_the_last_event(serve: Serve) -> None:
    served = serve()

    def translate(text: str) -> str:
        if "Two" in text:
            raise InvalidOutputError("the model's output is not a number")
        return text.upper()

    served.engine.translate = translate
    served.engine.hold()
    fields = {"q": "One. Two. Three.", "source": "en", "target": "de", "stream": True}
    with served.client.stream("POST", "/translate", json=fields) as answer:
        served.engine.release()  # not before the answer has begun
        answer.read()
    first, last = events(answer)
    assert first == {"index": 0, "text": "ONE."}
    assert last == {"error": "the model's output is not a number", "error_type": "backend"}


def test_a_client_that_leaves_a_stream_frees_its_rows(serve: Serve) -> None:
    served = serve()
    served.engine.hold()
    fields = {"q": "One. Two. Three.", "source": "en", "target": "de", "stream": True}
    with served.client.stream("POST", "/translate", json=fields) as answer:
        assert answer.status_code == 200
        wait_until(lambda: served.engine.num_running == 3)
    wait_until(lambda: served.engine.num_running == 0)
    assert served.engine.num_cancelled == 3
