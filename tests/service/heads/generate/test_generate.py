"""/generate and /generate_stream to the letter of TGI's protocol."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from model.tokenizer import EOS
from service.engine.core.errors import DeadlineError, InvalidOutputError, ModelUnavailableError
from service.engine.decode.sampling.options import SamplingOptions
from service.engine.decode.types import DecodingRequest
from tests.service.conftest import wait_until
from tests.service.generation_fakes import MAX_TOTAL_TOKENS, SAID, fallback_tokenizer, says
from tests.service.generation_http import RunningGenerator, events
from tests.service.heads.generate.conftest import ServeGenerator

IDS = says(SAID)
PROMPT_IDS = tuple(fallback_tokenizer().encodings(["a b"])[0].ids)
END = fallback_tokenizer().token_id(EOS)


def only_request(served: RunningGenerator) -> DecodingRequest:
    (request,) = served.engine.requests
    return request


def test_text_without_details(generator: RunningGenerator) -> None:
    response = generator.generate()
    assert response.json() == {"generated_text": SAID}
    assert response.headers["x-prompt-tokens"] == str(len(PROMPT_IDS))
    assert response.headers["x-generated-tokens"] == str(len(IDS) + 1)
    request = only_request(generator)
    assert request.prompt_ids == PROMPT_IDS
    assert request.sampling == SamplingOptions()
    assert request.options.max_new_tokens == MAX_TOTAL_TOKENS - len(PROMPT_IDS)


def test_explicit_nulls_and_unknown_fields_are_as_good_as_absent(generator: RunningGenerator) -> None:
    names = ("temperature", "top_p", "stop", "seed", "grammar", "details", "watermark", "best_of", "do_sample")
    response = generator.generate(**dict.fromkeys(names), never_heard_of="it")
    assert response.json() == {"generated_text": SAID}
    assert generator.client.post("/generate", json={"inputs": "a", "parameters": None}).status_code == 200


def test_details(generator: RunningGenerator) -> None:
    body = generator.generate(details=True, decoder_input_details=True, top_n_tokens=2).json()
    details = body["details"]
    assert {name: details[name] for name in ("finish_reason", "generated_tokens", "seed")} == {
        "finish_reason": "eos_token",
        "generated_tokens": len(IDS) + 1,
        "seed": None,
    }
    assert [token["id"] for token in details["tokens"]] == [*IDS, END]
    assert [token["special"] for token in details["tokens"]] == [False] * len(IDS) + [True]
    assert "".join(token["text"] for token in details["tokens"] if not token["special"]) == SAID
    assert details["tokens"][-1] == {"id": END, "text": EOS, "logprob": -0.5 * (len(IDS) + 1), "special": True}
    assert [token["id"] for token in details["prefill"]] == list(PROMPT_IDS)
    assert [token["logprob"] for token in details["prefill"]] == [None] + [-0.25] * (len(PROMPT_IDS) - 1)
    assert details["prefill"][0]["text"] == "<s>"
    assert [token["id"] for token in details["top_tokens"][0]] == [IDS[0], 7]
    assert "best_of_sequences" not in details


def test_details_without_more_have_an_empty_prefill(generator: RunningGenerator) -> None:
    details = generator.generate(details=True).json()["details"]
    assert details["prefill"] == []
    assert "top_tokens" not in details


@pytest.mark.parametrize(
    ("parameters", "options"),
    [
        ({"do_sample": True}, {}),
        ({"temperature": 0.5}, {"temperature": 0.5}),
        ({"temperature": 1e-9}, {"temperature": 1e-3}),
        ({"top_k": 3}, {"top_k": 3}),
        ({"top_p": 0.9}, {"top_p": 0.9}),
        ({"typical_p": 0.9}, {"typical_p": 0.9}),
        ({"min_p": 0.1}, {"min_p": 0.1}),
        ({"do_sample": True, "frequency_penalty": -2.0}, {"frequency_penalty": -2.0}),
    ],
)
def test_any_of_the_samplers_options_implies_sampling(
    generator: RunningGenerator, parameters: dict[str, Any], options: dict[str, Any]
) -> None:
    assert generator.generate(seed=7, **parameters).status_code == 200
    assert only_request(generator).sampling == SamplingOptions(do_sample=True, seed=7, **options)


def test_penalties_do_not_imply_sampling(generator: RunningGenerator) -> None:
    generator.generate(repetition_penalty=1.2, frequency_penalty=0.5)
    assert only_request(generator).sampling == SamplingOptions(repetition_penalty=1.2, frequency_penalty=0.5)


def test_the_seed_is_echoed_or_told(generator: RunningGenerator) -> None:
    assert generator.generate(seed=2**64 - 1, do_sample=True, details=True).json()["details"]["seed"] == 2**64 - 1
    drawn = generator.generate(do_sample=True, details=True).json()["details"]["seed"]
    assert drawn == generator.engine.requests[-1].sampling.seed
    assert drawn != generator.generate(do_sample=True, details=True).json()["details"]["seed"]


def test_the_best_of_several_by_mean_log_probability(generator: RunningGenerator) -> None:
    def script(request: DecodingRequest) -> list[int]:
        return says(" one two three") if len(generator.engine.requests) != 2 else says(" one")

    # The second is shorter, so that its sum would win where its mean does not.
    generator.engine.script = script
    generator.engine.log_prob = lambda request, number: (-0.1, -0.15, -0.2)[generator.engine.requests.index(request)]
    details = generator.generate(best_of=3, do_sample=True, details=True).json()["details"]
    assert [details["tokens"][0]["logprob"]] == [-0.1]
    assert [other["tokens"][0]["logprob"] for other in details["best_of_sequences"]] == [-0.15, -0.2]
    assert [other["generated_text"] for other in details["best_of_sequences"]] == [" one", SAID]
    seeds = [request.sampling.seed for request in generator.engine.requests]
    assert len(set(seeds)) == 3
    assert {details["seed"], *(other["seed"] for other in details["best_of_sequences"])} == set(seeds)
    assert generator.engine.num_running == 0


def test_the_text_ends_with_the_stop_sequence_and_its_row_is_free(generator: RunningGenerator) -> None:
    body = generator.generate(stop=["wo", "never"], details=True).json()
    assert body["generated_text"] == " one two"[: SAID.index("wo") + 2]
    assert body["details"]["finish_reason"] == "stop_sequence"
    assert generator.engine.num_running == 0
    assert generator.engine.num_steps == body["details"]["generated_tokens"] < len(IDS)


def test_a_stop_sequence_within_a_token_cuts_it(generator: RunningGenerator) -> None:
    body = generator.generate(stop=[" o"], details=True).json()
    assert body["generated_text"] == " o"
    assert "".join(token["text"] for token in body["details"]["tokens"]) == " o"


def test_as_many_tokens_as_asked_for(generator: RunningGenerator) -> None:
    details = generator.generate(max_new_tokens=2, details=True).json()["details"]
    assert (details["finish_reason"], details["generated_tokens"]) == ("length", 2)


def test_the_prompt_before_the_text(generator: RunningGenerator) -> None:
    assert generator.generate(return_full_text=True).json() == {"generated_text": "a b" + SAID}
    assert events(generator.generate_stream(return_full_text=True))[-1]["generated_text"] == "a b" + SAID


def test_truncate_keeps_the_last_tokens(generator: RunningGenerator) -> None:
    assert generator.generate("a b " * 100, truncate=3).status_code == 200
    assert only_request(generator).prompt_ids == tuple(fallback_tokenizer().encode("a b " * 100)[-3:])


def test_a_prompt_that_is_far_too_long_is_not_even_tokenized(generator: RunningGenerator) -> None:
    text = "a b " * 10_000
    assert "`inputs` must have less than 16000 characters. Given: 40000" in generator.generate(text).json()["error"]
    assert generator.generate(text, truncate=2).status_code == 200
    assert only_request(generator).prompt_ids == tuple(fallback_tokenizer().encode("a b ")[-2:])


def test_a_prompt_beyond_the_context(generator: RunningGenerator) -> None:
    response = generator.generate("a b " * 40)
    count = len(fallback_tokenizer().encodings(["a b " * 40])[0].ids)
    assert response.status_code == 422
    assert response.json() == {
        "error": f"Input validation error: `inputs` must have less than {MAX_TOTAL_TOKENS} tokens. Given: {count}",
        "error_type": "validation",
    }


def test_more_tokens_than_the_context_leaves(generator: RunningGenerator) -> None:
    room = MAX_TOTAL_TOKENS - len(PROMPT_IDS)
    assert generator.generate(max_new_tokens=room).status_code == 200
    response = generator.generate(max_new_tokens=room + 1)
    assert response.status_code == 422
    assert response.json()["error"] == (
        f"Input validation error: `inputs` tokens + `max_new_tokens` must be <= {MAX_TOTAL_TOKENS}. "
        f"Given: {len(PROMPT_IDS)} `inputs` tokens and {room + 1} `max_new_tokens`"
    )


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"temperature": 0}, "temperature parameter: Input should be greater than 0. Given: 0"),
        ({"temperature": 1e999}, "Invalid JSON format"),
        ({"repetition_penalty": -1}, "repetition_penalty parameter: Input should be greater than 0"),
        ({"frequency_penalty": 2.5}, "frequency_penalty parameter: Input should be less than or equal to 2"),
        ({"top_k": 0}, "top_k parameter: Input should be greater than 0"),
        ({"top_p": 1.0}, "top_p parameter: Input should be less than 1"),
        ({"typical_p": 0.0}, "typical_p parameter: Input should be greater than 0"),
        ({"max_new_tokens": 0}, "max_new_tokens parameter: Input should be greater than 0"),
        ({"truncate": 0}, "truncate parameter: Input should be greater than 0"),
        ({"seed": -1}, "seed parameter"),
        ({"stop": list("abcde")}, "stop parameter has 5 values, allowed: 4"),
        ({"stop": [""]}, "stop parameter: String should have at least 1 character"),
        ({"top_n_tokens": 6}, "top_n_tokens parameter: Input should be less than or equal to 5"),
        ({"best_of": 0}, "best_of parameter: Input should be greater than 0"),
        ({"best_of": 9, "do_sample": True}, "`best_of` must be > 0 and <= 8. Given: 9"),
        ({"best_of": 2}, "must use sampling when `best_of` is > 1"),
        ({"best_of": 2, "do_sample": True, "seed": 1}, "`seed` does not go with `best_of` > 1. Given: 1"),
        ({"watermark": True}, "`watermark` is not supported"),
        ({"grammar": {"type": "regex", "value": "a*"}}, "`grammar` is not supported"),
        ({"adapter_id": "mine"}, "`adapter_id` is not supported by this server, leave it out. Given: 'mine'"),
        ({"beam_size": 5}, "`beam_size` must be between 1 and 4. Given: 5"),
        ({"beam_size": 2, "temperature": 0.5}, "`temperature` does not go with beam search"),
        ({"beam_size": 2, "details": True}, "`details` does not go with beam search"),
    ],
)
def test_what_cannot_be_is_refused(generator: RunningGenerator, parameters: dict[str, Any], words: str) -> None:
    body = json.dumps({"inputs": "a", "parameters": parameters})
    response = generator.client.post("/generate", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 422
    assert response.json()["error_type"] == "validation"
    assert words in response.json()["error"]
    assert generator.engine.requests == []


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"inputs": ""}, "`inputs` cannot be empty"),
        ({}, "inputs parameter: Field required"),
        ({"inputs": ["a"]}, "inputs parameter: Input should be a valid string"),
        ({"inputs": "a", "parameters": [1]}, "parameters parameter: Input should be a valid dictionary"),
    ],
)
def test_inputs_that_are_none(generator: RunningGenerator, body: dict[str, Any], words: str) -> None:
    response = generator.client.post("/generate", json=body)
    assert response.status_code == 422
    assert words in response.json()["error"]


def test_beam_search(generator: RunningGenerator) -> None:
    assert generator.generate(beam_size=3, length_penalty=0.5, stop=["two"]).json() == {"generated_text": " one two"}
    request = only_request(generator)
    options = request.options
    assert (options.beam_size, options.length_penalty, options.num_hypotheses) == (3, 0.5, 1)


@pytest.mark.parametrize("path", ["/generate", "/generate_stream"])
def test_a_stream_has_an_event_for_each_token(generator: RunningGenerator, path: str) -> None:
    body = {"inputs": "a b", "stream": True, "parameters": {"details": True, "seed": 3, "do_sample": True}}
    found = events(generator.client.post(path, json=body))
    assert [event["index"] for event in found] == list(range(1, len(IDS) + 2))
    assert [event["token"]["id"] for event in found] == [*IDS, END]
    assert "".join(event["token"]["text"] for event in found if not event["token"]["special"]) == SAID
    assert [event["generated_text"] for event in found] == [None] * len(IDS) + [SAID]
    assert [event["details"] for event in found[:-1]] == [None] * len(IDS)
    assert found[-1]["details"] == {
        "finish_reason": "eos_token",
        "generated_tokens": len(IDS) + 1,
        "seed": 3,
        "input_length": len(PROMPT_IDS),
    }
    assert "top_tokens" not in found[0]


def test_a_stream_without_details(generator: RunningGenerator) -> None:
    last = events(generator.generate_stream(top_n_tokens=1, max_new_tokens=1))[-1]
    assert last["details"] is None
    assert [token["id"] for token in last["top_tokens"]] == [IDS[0]]


def test_a_stream_ends_with_its_stop_sequence(generator: RunningGenerator) -> None:
    found = events(generator.generate_stream(stop=["e t"], details=True))
    assert found[-1]["generated_text"] == " one t"
    assert "".join(event["token"]["text"] for event in found) == " one t"
    assert found[-1]["details"]["finish_reason"] == "stop_sequence"
    assert generator.engine.num_running == 0


def test_a_stream_never_splits_a_character(generator: RunningGenerator) -> None:
    generator.engine.script = lambda request: says(" 😀é")
    texts = [event["token"]["text"] for event in events(generator.generate_stream())][:-1]
    assert "".join(texts) == " 😀é"
    assert not any("\ufffd" in text for text in texts)
    assert texts.count("") >= 3


@pytest.mark.parametrize(
    "parameters", [{"best_of": 2, "do_sample": True}, {"decoder_input_details": True}, {"beam_size": 2}]
)
def test_what_cannot_be_streamed(generator: RunningGenerator, parameters: dict[str, Any]) -> None:
    assert generator.generate_stream(**parameters).status_code == 422


def test_a_full_line_is_told_by_the_status(generator: RunningGenerator) -> None:
    generator.engine.max_running = 0
    for response in (generator.generate(), generator.generate_stream()):
        assert response.status_code == 429
        assert response.headers["retry-after"] == "3"
        assert response.json() == {"error": "Model is overloaded", "error_type": "overloaded"}


def test_several_are_admitted_or_none(generator: RunningGenerator) -> None:
    generator.engine.max_running = 2
    assert generator.generate(best_of=3, do_sample=True).status_code == 429
    assert generator.engine.num_running == 0


@pytest.mark.parametrize(
    ("failure", "status", "kind"),
    [
        (InvalidOutputError("no numbers"), 424, "generation"),
        (DeadlineError("too late"), 504, "timeout"),
        (ModelUnavailableError("the loop died"), 503, "unhealthy"),
    ],
)
def test_errors_before_and_after_the_start(
    generator: RunningGenerator, failure: Exception, status: int, kind: str
) -> None:
    generator.engine.failure, generator.engine.fails_after = failure, 2
    response = generator.generate()
    assert (response.status_code, response.json()["error_type"]) == (status, kind)
    found = events(generator.generate_stream())
    assert [event.get("index") for event in found] == [1, 2, None]
    assert set(found[-1]) == {"error", "error_type"}
    assert found[-1]["error_type"] == kind
    wait_until(lambda: generator.engine.num_running == 0)  # once the answer is out


def test_models_by_name(generator: RunningGenerator) -> None:
    post = generator.client.post
    assert post("/generate", json={"inputs": "a", "model": "story"}).status_code == 200
    assert post("/generate", json={"inputs": "a", "model": "none"}).status_code == 404
    wrong = post("/generate", json={"inputs": "a", "model": "en-de"})
    assert wrong.status_code == 422
    assert "for the task translate, not for generate, choose from: story" in wrong.json()["error"]


def test_no_model_and_no_key(serve_generator: ServeGenerator) -> None:
    served = serve_generator(api_keys="one")
    assert served.generate().status_code == 401
    assert served.client.post("/generate", json={"inputs": "a"}, headers={"Authorization": "Bearer one"}).is_success


def test_info_health_and_models(generator: RunningGenerator) -> None:
    (info,) = [model for model in generator.client.get("/info").json()["models"] if model["name"] == "story"]
    assert (info["task"], info["max_total_tokens"], info["has_chat_template"]) == ("generate", MAX_TOTAL_TOKENS, True)
    assert generator.client.get("/health?details=1").json() == {
        "status": "ok",
        "models": {"en-de": "ok", "story": "ok"},
    }
    assert generator.engine.num_running == 0
    assert [model["id"] for model in generator.client.get("/v1/models").json()["data"]] == ["en-de", "story"]


def test_the_openapi_page_knows_what_is_said(generator: RunningGenerator) -> None:
    """Every reference leads somewhere, parameters are told by name, and a stream is one."""
    page = generator.client.get("/openapi.json").json()
    for path in ("/generate", "/generate_stream", "/v1/completions", "/v1/chat/completions"):
        text = json.dumps(page["paths"][path])
        assert "#/$defs" not in text
        for name in re.findall(r'"#/components/schemas/(\w+)"', text):
            assert name in page["components"]["schemas"]
    body = page["paths"]["/generate"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert "top_n_tokens" in body["properties"]["parameters"]["properties"]
    responses = page["paths"]["/generate_stream"]["post"]["responses"]
    assert list(responses["200"]["content"]) == ["text/event-stream"]
    assert list(responses["422"]["content"]) == ["application/json"]  # an error before the stream begins


def test_prompts_are_charged_to_the_key(serve_generator: ServeGenerator) -> None:
    served = serve_generator()
    for answer in (
        served.generate("a b"),
        served.generate_stream("a b"),
        served.complete("a b"),
        served.complete("c", n=2),
    ):
        assert answer.status_code == 200, answer.text
    assert served.client.get("/v2/usage").json()["character_count"] == 10


def test_a_prompt_that_was_cut_is_told(generator: RunningGenerator) -> None:
    cut = generator.generate("a b c d", truncate=2, details=True)
    assert (cut.headers["x-truncated-inputs"], cut.json()["details"]["truncated"]) == ("1", True)
    whole = generator.generate("a b", truncate=40, details=True)
    assert "x-truncated-inputs" not in whole.headers
    assert "truncated" not in whole.json()["details"]
