"""/v1/responses with OpenAI's own client, whose stream helper puts the events together."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.service.generation_fakes import SAID, says
from tests.service.generation_http import RunningGenerator

IDS = says(SAID)


@pytest.fixture
def client(generator: RunningGenerator) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{generator.url}/v1", api_key="none", max_retries=0)


def ask(generator: RunningGenerator, **fields: Any) -> Any:
    return generator.client.post("/v1/responses", json={"model": "story", "input": "a b"} | fields)


def test_a_text_is_answered(client: openai.OpenAI) -> None:
    answer = client.responses.create(model="story", input="a b", store=False, metadata={"key": "value"})
    assert (answer.output_text, answer.status) == (SAID, "completed")
    assert answer.usage is not None
    assert answer.usage.output_tokens == len(IDS) + 1
    assert answer.usage.total_tokens == answer.usage.input_tokens + len(IDS) + 1
    assert answer.metadata == {"key": "value"}


def test_messages_and_instructions_are_what_a_chat_has(generator: RunningGenerator, client: openai.OpenAI) -> None:
    client.responses.create(
        model="story",
        instructions="be brief",
        input=[
            {"role": "user", "content": [{"type": "input_text", "text": "a "}, {"type": "input_text", "text": "b"}]},
            {"role": "assistant", "content": "c"},
            {"role": "user", "content": "d"},
        ],
    )
    generator.chat(
        *({"role": role, "content": said} for role, said in (("system", "be brief"), ("user", "a b"))),
        {"role": "assistant", "content": "c"},
        {"role": "user", "content": "d"},
    )
    first, second = generator.engine.requests
    assert first.prompt_ids == second.prompt_ids


def test_an_answer_that_is_cut_off_is_incomplete(client: openai.OpenAI) -> None:
    answer = client.responses.create(model="story", input="a b", max_output_tokens=2)
    assert (answer.output_text, answer.status) == (" one two", "incomplete")
    assert answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"


def test_the_stream_helper_of_openais_client_parses_it(client: openai.OpenAI) -> None:
    with client.responses.stream(model="story", input="a b") as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert set(kinds[4:-4]) == {"response.output_text.delta"}
    assert final.output_text == SAID


def test_every_event_has_its_name_and_number(generator: RunningGenerator) -> None:
    blocks = ask(generator, stream=True).text.split("\n\n")
    assert blocks.pop() == ""
    for number, block in enumerate(blocks):
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert (f"event: {event['type']}", event["sequence_number"]) == (name, number)


def test_an_error_in_the_midst_of_a_stream_is_an_event(generator: RunningGenerator, client: openai.OpenAI) -> None:
    generator.engine.failure, generator.engine.fails_after = RuntimeError("a fault"), 1
    with pytest.raises(openai.APIError, match="Internal server error"):
        list(client.responses.create(model="story", input="a b", stream=True))


@pytest.mark.parametrize(
    ("fields", "parameter"),
    [
        ({"store": True}, "store"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"text": {"format": {"type": "json_object"}}}, "text"),
        ({"truncation": "auto"}, "truncation"),
        ({"input": [{"type": "item_reference", "id": "a"}]}, "input"),
        ({"input": []}, "messages"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "content"),
        ({"max_output_tokens": 1000}, "max_output_tokens"),
    ],
)
def test_what_is_not_there_is_refused(generator: RunningGenerator, fields: dict[str, Any], parameter: str) -> None:
    response = ask(generator, **fields)
    assert (response.status_code, response.json()["error"]["param"]) == (400, parameter), response.text
    assert generator.engine.requests == []
