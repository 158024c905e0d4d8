"""/v1/chat/completions to the letter of OpenAI's protocol."""

from __future__ import annotations

from typing import Any

import pytest

from model.tokenizer import EOS
from service.engine.core.errors import InvalidOutputError
from service.engine.decode.sampling.options import SamplingOptions
from service.heads.generate.chat import ChatTemplate
from tests.service.generation_fakes import (
    MAX_TOTAL_TOKENS,
    SAID,
    TEMPLATE,
    ScriptedEngine,
    fake_generator,
    fallback_tokenizer,
    says,
)
from tests.service.generation_http import RunningGenerator, events
from tests.service.heads.generate.conftest import ServeGenerator

IDS = says(SAID)
USER = {"role": "user", "content": "a b"}
PROMPT = ChatTemplate(TEMPLATE, fake_generator(ScriptedEngine())).prompt([USER])


def chunks(served: RunningGenerator, **fields: Any) -> list[dict[str, Any]]:
    found = events(served.chat(USER, stream=True, **fields), "data: ")
    assert found.pop() == "[DONE]"
    assert {chunk["object"] for chunk in found} == {"chat.completion.chunk"}
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in found}) == 1
    return found


def test_the_answer_has_openais_shape(generator: RunningGenerator) -> None:
    body = generator.chat(USER).json()
    assert body.pop("id").startswith("chatcmpl-")
    assert isinstance(body.pop("created"), int)
    assert body.pop("system_fingerprint").startswith("polyhead-")  # TGI's client cannot do without
    num_prompt, num_new = len(PROMPT.token_ids), len(IDS) + 1
    assert body == {
        "object": "chat.completion",
        "model": "story",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": SAID}, "logprobs": None, "finish_reason": "stop"}
        ],
        "usage": {
            "prompt_tokens": num_prompt,
            "completion_tokens": num_new,
            "total_tokens": num_prompt + num_new,
        },
    }
    (request,) = generator.engine.requests
    assert request.prompt_ids == PROMPT.token_ids
    assert request.options.max_new_tokens == MAX_TOTAL_TOKENS - num_prompt
    assert request.sampling == SamplingOptions(do_sample=True)


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_as_many_tokens_as_asked_for(generator: RunningGenerator, name: str) -> None:
    choice = generator.chat(USER, **{name: 2}).json()["choices"][0]
    assert choice["finish_reason"] == "length"
    assert generator.engine.num_steps == 2


def test_parts_of_a_content_and_the_name_of_developers(generator: RunningGenerator) -> None:
    parts = [{"type": "text", "text": "a "}, {"type": "text", "text": "b"}]
    generator.chat({"role": "developer", "content": "be kind"}, {"role": "user", "content": parts})
    generator.chat({"role": "system", "content": "be kind"}, USER)
    first, second = generator.engine.requests
    assert first.prompt_ids == second.prompt_ids


def test_chunks(generator: RunningGenerator) -> None:
    found = chunks(generator)
    deltas = [chunk["choices"][0]["delta"] for chunk in found]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert deltas[-1] == {}
    assert "".join(delta["content"] for delta in deltas[1:-1]) == SAID
    assert [chunk["choices"][0]["finish_reason"] for chunk in found] == [None] * (len(found) - 1) + ["stop"]


def test_chunks_of_several_choices_with_usage(generator: RunningGenerator) -> None:
    *parts, last = chunks(generator, n=2, stream_options={"include_usage": True})
    for index in (0, 1):
        deltas = [part["delta"] for chunk in parts for part in chunk["choices"] if part["index"] == index]
        assert "".join(delta.get("content", "") for delta in deltas) == SAID
    assert all(chunk["usage"] is None for chunk in parts)
    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 2 * (len(IDS) + 1))


def test_logprobs(generator: RunningGenerator) -> None:
    generator.engine.script = lambda request: says(" é")
    content = generator.chat(USER, logprobs=True, top_logprobs=2).json()["choices"][0]["logprobs"]["content"]
    assert bytes(byte for token in content for byte in token["bytes"]).decode() == " é"
    assert content[-1]["token"] == "bytes:\\xa9"
    assert [len(token["top_logprobs"]) for token in content] == [2] * len(content)
    assert content[0]["top_logprobs"][0] == {name: content[0][name] for name in ("token", "logprob", "bytes")}
    streamed = [
        token
        for chunk in chunks(generator, logprobs=True, top_logprobs=2)
        for token in (chunk["choices"][0]["logprobs"] or {"content": []})["content"]
    ]
    assert streamed == content


def test_the_text_ends_before_the_stop_sequence(generator: RunningGenerator) -> None:
    choice = generator.chat(USER, stop=["e t"]).json()["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == (" on", "stop")


def test_an_error_after_the_start(generator: RunningGenerator) -> None:
    generator.engine.failure, generator.engine.fails_after = InvalidOutputError("no numbers"), 1
    found = events(generator.chat(USER, stream=True), "data: ")
    assert found[-1]["error"]["type"] == "server_error"


def test_a_special_token_that_is_written_out_is_no_token(generator: RunningGenerator) -> None:
    generator.chat({"role": "user", "content": f"a{EOS}"})
    assert fallback_tokenizer().token_id(EOS) not in generator.engine.requests[0].prompt_ids


def test_a_model_without_a_template(serve_generator: ServeGenerator) -> None:
    served = serve_generator(models=lambda engine: [fake_generator(engine, chat_template=None)])
    response = served.chat(USER)
    assert response.status_code == 400
    assert response.json()["error"]["message"] == (
        "Invalid request: the model story has no chat template, use /v1/completions"
    )


@pytest.mark.parametrize(
    ("fields", "parameter", "words"),
    [
        ({"messages": []}, "messages", "at least 1 item"),
        ({"messages": None}, "messages", "Field required"),
        ({"messages": ["hello"]}, "messages", "each must be an object. Given: 'hello'"),
        ({"messages": [{"role": "king", "content": "a"}]}, "role", "'system', 'developer', 'user' or 'assistant'"),
        ({"messages": [{"role": "user"}]}, "content", "Field required"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "content", "must be texts"),
        ({"messages": [{"role": "assistant", "content": "a"}]}, "messages", "somebody must speak first"),
        ({"max_tokens": 0}, "max_tokens", "greater than or equal to 1"),
        ({"max_completion_tokens": 64}, "max_completion_tokens", "`messages` tokens + `max_completion_tokens` must be"),
        ({"n": 9}, "n", "must be between 1 and 8"),
        ({"top_logprobs": 2}, "top_logprobs", "goes with logprobs alone. Given: 2"),
        ({"logprobs": True, "top_logprobs": 17}, "top_logprobs", "must be >= 0 and <= 16 for the model story"),
        ({"tools": [{"type": "function"}]}, "tools", "tools is not supported"),
        ({"tool_choice": "auto"}, "tool_choice", "tool_choice is not supported"),
        ({"response_format": {"type": "json_object"}}, "response_format", "response_format is not supported"),
    ],
)
def test_what_cannot_be_is_refused(
    generator: RunningGenerator, fields: dict[str, Any], parameter: str, words: str
) -> None:
    response = generator.client.post("/v1/chat/completions", json={"model": "story", "messages": [USER]} | fields)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == parameter
    assert words in error["message"]
    assert generator.engine.requests == []


def test_what_asks_for_nothing_is_no_error(generator: RunningGenerator) -> None:
    harmless: dict[str, Any] = {
        "tools": [],
        "tool_choice": "none",
        "response_format": {"type": "text"},
        "functions": None,
    }
    assert generator.chat(USER, **harmless).status_code == 200
