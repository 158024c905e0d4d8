"""/v1/completions to the letter of OpenAI's protocol."""

from __future__ import annotations

from typing import Any

import pytest

from model.tokenizer import EOS
from service.engine.core.errors import InvalidOutputError
from service.engine.decode.sampling.options import SamplingOptions
from tests.service.generation_fakes import MAX_TOTAL_TOKENS, SAID, fallback_tokenizer, says
from tests.service.generation_http import RunningGenerator, events
from tests.service.heads.generate.conftest import ServeGenerator

IDS = says(SAID)
PROMPT_IDS = tuple(fallback_tokenizer().encodings(["a b"])[0].ids)
END = fallback_tokenizer().token_id(EOS)


def chunks(served: RunningGenerator, *arguments: Any, **fields: Any) -> list[dict[str, Any]]:
    """All chunks of a stream, which share what they must and end as they must."""
    found = events(served.complete(*arguments, stream=True, **fields), "data: ")
    assert found.pop() == "[DONE]"
    assert {chunk["object"] for chunk in found} == {"text_completion"}
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in found}) == 1
    return found


def choice_of(found: list[dict[str, Any]], index: int = 0) -> dict[str, Any]:
    """One choice of a stream, put together again."""
    parts = [part for chunk in found for part in chunk["choices"] if part["index"] == index]
    assert [part["finish_reason"] for part in parts[:-1]] == [None] * (len(parts) - 1)
    logprobs = [part["logprobs"] for part in parts if part["logprobs"] is not None]
    joined = {name: [item for part in logprobs for item in part[name]] for name in logprobs[0]} if logprobs else None
    text = "".join(part["text"] for part in parts)
    return {"index": index, "text": text, "logprobs": joined, "finish_reason": parts[-1]["finish_reason"]}


def test_the_answer_has_openais_shape(generator: RunningGenerator) -> None:
    body = generator.complete(max_tokens=40, temperature=0, user="me").json()
    assert body.pop("id").startswith("cmpl-")
    assert isinstance(body.pop("created"), int)
    assert body.pop("system_fingerprint").startswith("polyhead-")
    count = len(IDS) + 1
    assert body == {
        "object": "text_completion",
        "model": "story",
        "choices": [{"index": 0, "text": SAID, "logprobs": None, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": len(PROMPT_IDS),
            "completion_tokens": count,
            "total_tokens": len(PROMPT_IDS) + count,
        },
    }
    (request,) = generator.engine.requests
    assert request.sampling == SamplingOptions()
    assert request.options.max_new_tokens == 40


@pytest.mark.parametrize("path", ["/v1/completions", "/generate"])
def test_a_special_token_that_a_prompt_spells_is_that_token(generator: RunningGenerator, path: str) -> None:
    """As TGI and vLLM read prompts; a client that writes its own <s> declines that of the tokenizer."""
    specials = fallback_tokenizer().token_id("<s>"), fallback_tokenizer().token_id("<|turn|>")
    text = "<s>a<|turn|>b"
    name = "prompt" if path.startswith("/v1") else "inputs"
    body: dict[str, Any] = {name: text, "max_tokens": 1}
    assert generator.client.post(path, json=body).status_code == 200
    ids = generator.engine.requests[-1].prompt_ids
    assert ids[:2] == (specials[0], specials[0])
    assert specials[1] in ids
    more: dict[str, Any] = {"add_special_tokens": False}
    generator.client.post(path, json=body | (more if path.startswith("/v1") else {"parameters": more}))
    assert generator.engine.requests[-1].prompt_ids == ids[1:]


def test_a_prompt_that_is_too_long_has_openais_code(generator: RunningGenerator) -> None:
    for fields in ({"prompt": [5] * MAX_TOTAL_TOKENS}, {"prompt": "a", "max_tokens": MAX_TOTAL_TOKENS}):
        answer = generator.complete(**fields)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")


def test_the_defaults(generator: RunningGenerator) -> None:
    """16 tokens, drawn at temperature 1; and less where the context leaves less."""
    generator.complete(max_tokens=None, temperature=None)
    generator.complete([5] * (MAX_TOTAL_TOKENS - 3))
    assert [request.options.max_new_tokens for request in generator.engine.requests] == [16, 3]
    assert generator.engine.requests[0].sampling == SamplingOptions(do_sample=True)


def test_every_option_reaches_the_engine(generator: RunningGenerator) -> None:
    generator.complete(
        temperature=0.5,
        top_p=0.9,
        top_k=4,
        min_p=0.1,
        typical_p=0.8,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        repetition_penalty=1.5,
        logit_bias={"5": -100, "6": 1.5},
        seed=-3,
    )
    (request,) = generator.engine.requests
    assert request.sampling == SamplingOptions(
        do_sample=True,
        temperature=0.5,
        top_p=0.9,
        top_k=4,
        min_p=0.1,
        typical_p=0.8,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        repetition_penalty=1.5,
        logit_bias=((5, -100.0), (6, 1.5)),
        seed=2**64 - 3,
    )


@pytest.mark.parametrize("fields", [{"temperature": 0}, {"top_p": 0}])
def test_greedy(generator: RunningGenerator, fields: dict[str, Any]) -> None:
    generator.complete(**fields)
    assert generator.engine.requests[0].sampling == SamplingOptions()


@pytest.mark.parametrize(
    ("prompt", "texts"),
    [
        ("a b", ["a b"]),
        (["a b", "c"], ["a b", "c"]),
        (list(PROMPT_IDS), ["a b"]),
        ([list(PROMPT_IDS), "c"], ["a b", "c"]),
    ],
)
def test_texts_and_token_ids_and_their_echo(generator: RunningGenerator, prompt: Any, texts: list[str]) -> None:
    body = generator.complete(prompt, echo=True, temperature=0).json()
    assert [choice["text"] for choice in body["choices"]] == [text + SAID for text in texts]
    expected = [tuple(encoding.ids) for encoding in fallback_tokenizer().encodings(texts)]
    assert [request.prompt_ids for request in generator.engine.requests] == expected
    assert body["usage"]["prompt_tokens"] == sum(map(len, expected))


def test_several_choices_have_seeds_of_their_own(generator: RunningGenerator) -> None:
    generator.engine.script = lambda request: says(" one two") if request.sampling.seed == 8 else says(" one")
    body = generator.complete(["a", "b"], n=2, seed=7).json()
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]
    assert [choice["text"] for choice in body["choices"]] == [" one", " one two"] * 2


def test_the_best_of_several(generator: RunningGenerator) -> None:
    generator.engine.script = lambda request: says([" one", " two", " three"][(request.sampling.seed or 0) - 1])
    generator.engine.log_prob = lambda request, number: (-0.5, -0.1, -0.2)[(request.sampling.seed or 0) - 1]
    body = generator.complete(n=2, best_of=3, seed=1).json()
    assert [choice["text"] for choice in body["choices"]] == [" two", " three"]
    assert body["usage"]["completion_tokens"] == sum(len(says(word)) + 1 for word in (" one", " two", " three"))


@pytest.mark.parametrize("stop", ["e t", ["never", "e t"]])
def test_the_text_ends_before_the_stop_sequence(generator: RunningGenerator, stop: Any) -> None:
    for choice in (generator.complete(stop=stop).json()["choices"][0], choice_of(chunks(generator, stop=stop))):
        assert choice == {"index": 0, "text": " on", "logprobs": None, "finish_reason": "stop"}
    assert generator.engine.num_running == 0
    assert generator.engine.num_steps < 2 * len(IDS)


def test_no_chunk_has_a_part_of_a_stop_sequence(generator: RunningGenerator) -> None:
    generator.engine.script = lambda request: says(" on one two")
    found = chunks(generator, stop="one t")
    assert choice_of(found)["text"] == " on "
    assert not any("one" in "".join(part["text"] for part in chunk["choices"]) for chunk in found)
    # What only looked like one is given out after all.
    assert choice_of(chunks(generator, stop="two three", temperature=0))["text"] == " on one two"


def test_logprobs(generator: RunningGenerator) -> None:
    choice = generator.complete(logprobs=2, max_tokens=40).json()["choices"][0]
    logprobs = choice["logprobs"]
    assert "".join(logprobs["tokens"]) == choice["text"] == SAID
    assert logprobs["token_logprobs"] == [-0.5 * (number + 1) for number in range(len(IDS))]
    assert [
        choice["text"][offset:].startswith(token)
        for token, offset in zip(logprobs["tokens"], logprobs["text_offset"], strict=True)
    ] == [True] * len(IDS)
    first = logprobs["top_logprobs"][0]
    assert first[logprobs["tokens"][0]] == -0.5
    assert sorted(first.values()) == [-1.5, -0.5]
    assert generator.engine.requests[0].top_n_tokens == 2


def test_no_likeliest_tokens_but_the_chosen_one(generator: RunningGenerator) -> None:
    logprobs = generator.complete(logprobs=0, max_tokens=1).json()["choices"][0]["logprobs"]
    assert logprobs["top_logprobs"] == [{logprobs["tokens"][0]: -0.5}]


def test_a_part_of_a_character_in_logprobs(generator: RunningGenerator) -> None:
    generator.engine.script = lambda request: says(" é")
    logprobs = generator.complete(logprobs=0).json()["choices"][0]["logprobs"]
    assert logprobs["tokens"][-2:] == ["bytes:\\xc3", "bytes:\\xa9"]
    assert logprobs["text_offset"][-2:] == [1, 1]


def test_logprobs_of_a_token_without_characters(generator: RunningGenerator) -> None:
    """One that is cut off, or special, at the end."""
    generator.engine.script = lambda request: [*says(" one"), fallback_tokenizer().token_id("<s>")]
    for choice in (
        generator.complete(logprobs=0, max_tokens=2).json()["choices"][0],
        choice_of(chunks(generator, logprobs=0, max_tokens=2)),
    ):
        assert (choice["text"], choice["finish_reason"]) == (" one", "length")
        assert choice["logprobs"]["tokens"][-1] == "<s>"
        assert choice["logprobs"]["text_offset"][-1] == len(" one")


def test_logprobs_of_an_echoed_prompt(generator: RunningGenerator) -> None:
    for echoed in (
        generator.complete(echo=True, logprobs=1).json()["choices"][0],
        choice_of(chunks(generator, echo=True, logprobs=1)),
    ):
        logprobs = echoed["logprobs"]
        assert echoed["text"] == "a b" + SAID
        assert logprobs["tokens"][0] == "<s>"
        assert "".join(logprobs["tokens"][1:]) == echoed["text"]
        count = len(PROMPT_IDS)
        assert logprobs["token_logprobs"][: count + 1] == [None] + [-0.25] * (count - 1) + [-0.5]
        assert logprobs["top_logprobs"][0] is None
        assert logprobs["top_logprobs"][1] == {logprobs["tokens"][1]: -0.25}
        for token, offset in list(zip(logprobs["tokens"], logprobs["text_offset"], strict=True))[1:]:
            assert echoed["text"][offset:].startswith(token)


def test_only_the_prompt_is_scored(generator: RunningGenerator) -> None:
    fields = {"echo": True, "logprobs": 0, "max_tokens": 0}
    for choice in (generator.complete(**fields).json()["choices"][0], choice_of(chunks(generator, **fields))):
        assert (choice["text"], choice["finish_reason"]) == ("a b", "length")
        assert len(choice["logprobs"]["tokens"]) == len(PROMPT_IDS)
    assert generator.complete(**fields).json()["usage"]["completion_tokens"] == 0


def test_logprobs_end_where_the_text_ends(generator: RunningGenerator) -> None:
    fields = {"stop": " t", "logprobs": 1, "temperature": 0}
    for choice in (generator.complete(**fields).json()["choices"][0], choice_of(chunks(generator, **fields))):
        assert "".join(choice["logprobs"]["tokens"]) == choice["text"] == " one"


def test_chunks(generator: RunningGenerator) -> None:
    found = chunks(generator, max_tokens=40, logprobs=1)
    assert choice_of(found) == generator.complete(max_tokens=40, logprobs=1).json()["choices"][0]
    assert len(found) == len(IDS) + 1
    assert not any("usage" in chunk for chunk in found)


def test_chunks_of_several_choices(generator: RunningGenerator) -> None:
    generator.engine.script = lambda request: says(" one two" if len(request.prompt_ids) == len(PROMPT_IDS) else " one")
    found = chunks(generator, ["a b", "c"], n=2, echo=True)
    texts = [choice_of(found, index)["text"] for index in range(4)]
    assert texts == ["a b one two"] * 2 + ["c one"] * 2
    assert generator.engine.num_running == 0


def test_usage_at_the_end_of_a_stream(generator: RunningGenerator) -> None:
    *parts, last = chunks(generator, max_tokens=40, stream_options={"include_usage": True})
    assert all(chunk["usage"] is None for chunk in parts)
    assert last["choices"] == []
    assert last["usage"] == generator.complete(max_tokens=40).json()["usage"]


def test_an_error_after_the_start(generator: RunningGenerator) -> None:
    generator.engine.failure, generator.engine.fails_after = InvalidOutputError("no numbers"), 2
    for n in (1, 2):
        found = events(generator.complete(stream=True, n=n), "data: ")
        assert found[-1]["error"].keys() == {"message", "type", "param", "code"}
        assert found[-1]["error"]["type"] == "server_error"
        assert len(found) == 2 * n + 1
    response = generator.complete()
    assert (response.status_code, response.json()["error"]["type"]) == (500, "server_error")


def test_a_full_line(generator: RunningGenerator) -> None:
    generator.engine.max_running = 1
    for fields in ({"n": 2}, {"n": 2, "stream": True}):
        response = generator.complete(**fields)
        assert (response.status_code, response.headers["retry-after"]) == (429, "3")
        assert response.json()["error"]["type"] == "rate_limit_error"
    assert generator.engine.num_running == 0


@pytest.mark.parametrize(
    ("fields", "parameter", "words"),
    [
        ({"suffix": "the end"}, "suffix", "suffix is not supported"),
        ({"temperature": 2.5}, "temperature", "less than or equal to 2"),
        ({"temperature": -1}, "temperature", "greater than or equal to 0"),
        ({"top_p": 1.5}, "top_p", "less than or equal to 1"),
        ({"n": 0}, "n", "greater than or equal to 1"),
        ({"n": 9}, "n", "must be between 1 and 8. Given: 9"),
        ({"n": 2, "best_of": 1}, "best_of", "must be at least n, which is 2. Given: 1"),
        ({"best_of": 2, "stream": True}, "best_of", "must be n where the answer is streamed"),
        ({"logprobs": 6}, "logprobs", "less than or equal to 5"),
        ({"stop": list("abcde")}, "stop", "stop parameter has 5 values, allowed: 4"),
        ({"stop": ""}, "stop", "at least 1 character"),
        ({"presence_penalty": 3}, "presence_penalty", "less than or equal to 2"),
        ({"logit_bias": {"5": 101}}, "logit_bias", "101.0 for the token 5 is not between -100 and 100"),
        ({"logit_bias": {"x": 1}}, "logit_bias", "its keys are token ids. Given: 'x'"),
        ({"logit_bias": {"99999": 1}}, "logit_bias", "has the token id 99999, allowed: 0 to"),
        ({"max_tokens": -1}, "max_tokens", "greater than or equal to 0"),
        ({"max_tokens": 0}, "max_tokens", "is 0, which goes with echo alone"),
        ({"max_tokens": MAX_TOTAL_TOKENS}, "max_tokens", f"must be <= {MAX_TOTAL_TOKENS}. Given: {len(PROMPT_IDS)}"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "goes with stream alone"),
        ({"prompt": []}, "prompt", "cannot be empty"),
        ({"prompt": ""}, "prompt", "cannot be empty"),
        ({"prompt": [10**6]}, "prompt", "has the token id 1000000, allowed: 0 to"),
        ({"prompt": [5] * MAX_TOTAL_TOKENS}, "prompt", f"must have less than {MAX_TOTAL_TOKENS} tokens. Given: 64"),
        ({"prompt": {"a": 1}}, "prompt", "must be a string, a list of token ids"),
        ({"prompt": ["a"] * 33}, "prompt", "batch size 33 > maximum allowed batch size 32"),
        ({"beam_size": 2, "top_k": 3}, "top_k", "does not go with beam search"),
        ({"beam_size": 2, "stream": True}, "stream", "does not go with beam search"),
        ({"beam_size": 2, "n": 3}, "n", "must be at most beam_size, which is 2. Given: 3"),
    ],
)
def test_what_cannot_be_is_refused(
    generator: RunningGenerator, fields: dict[str, Any], parameter: str, words: str
) -> None:
    response = generator.complete(**({"prompt": "a b"} | fields))
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", parameter)
    assert words in error["message"]
    assert generator.engine.requests == []


def test_beam_search(generator: RunningGenerator) -> None:
    body = generator.complete(beam_size=3, n=2, stop="three", echo=True).json()
    shorter = fallback_tokenizer().decode([*PROMPT_IDS, *IDS[:-1]])
    assert [choice["text"] for choice in body["choices"]] == ["a b one two ", shorter]
    assert [choice["finish_reason"] for choice in body["choices"]] == ["stop", "length"]
    assert generator.engine.requests[0].options.num_hypotheses == 2


def test_models_and_keys(generator: RunningGenerator, serve_generator: ServeGenerator) -> None:
    unknown = generator.complete(model="none")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
    assert generator.complete(model="en-de").status_code == 400
    assert generator.complete(model=None).json()["model"] == "story"
    assert serve_generator(api_keys="one").complete().status_code == 401


def test_each_prompt_is_scored_for_each_choice(generator: RunningGenerator) -> None:
    """Whichever of them are the best, each has its echo."""
    generator.engine.log_prob = lambda request, number: -0.5 if request.sampling.seed == 1 else -0.1
    logprobs = generator.complete(echo=True, logprobs=0, best_of=2, seed=1).json()["choices"][0]["logprobs"]
    assert logprobs["tokens"][0] == "<s>"
    assert logprobs["token_logprobs"][len(PROMPT_IDS) :] == [-0.1] * len(IDS)
