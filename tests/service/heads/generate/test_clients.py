"""The clients that people have for generation, unchanged."""

from __future__ import annotations

import huggingface_hub.errors
import openai
import pytest
from huggingface_hub import InferenceClient

from tests.service.generation_fakes import SAID, says
from tests.service.generation_http import RunningGenerator

IDS = says(SAID)


@pytest.fixture
def client(generator: RunningGenerator) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{generator.url}/v1", api_key="none", max_retries=0)


@pytest.fixture
def hub(generator: RunningGenerator) -> InferenceClient:
    return InferenceClient(model=f"{generator.url}/generate")


def test_openai_completes(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="story", prompt=["a b", "c"], n=2, best_of=3, max_tokens=40, logprobs=2, echo=True, seed=3, stop=["never"]
    )
    assert [choice.text for choice in answer.choices] == ["a b" + SAID] * 2 + ["c" + SAID] * 2
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens is not None
    assert "".join(logprobs.tokens[1:]) == "a b" + SAID
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 6 * (len(IDS) + 1)


def test_openai_completes_with_token_ids(client: openai.OpenAI) -> None:
    assert client.completions.create(model="story", prompt=[5, 6], max_tokens=40).choices[0].text == SAID


def test_openai_streams(client: openai.OpenAI) -> None:
    stream = client.completions.create(
        model="story", prompt="a b", stream=True, stream_options={"include_usage": True}, max_tokens=40, logprobs=1
    )
    *chunks, last = list(stream)
    assert "".join(chunk.choices[0].text for chunk in chunks) == SAID
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert last.usage is not None
    assert last.usage.completion_tokens == len(IDS) + 1


def test_openai_chats(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="story", messages=[{"role": "user", "content": "a b"}], logprobs=True, top_logprobs=1, n=2
    )
    assert [choice.message.content for choice in answer.choices] == [SAID] * 2
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert "".join(token.token for token in logprobs.content) == SAID


def test_openai_streams_a_chat(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="story", messages=[{"role": "user", "content": "a b"}], stream=True, max_completion_tokens=40
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == SAID


def test_openai_sees_errors_as_its_own(generator: RunningGenerator, client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="suffix is not supported"):
        client.completions.create(model="story", prompt="a", suffix="b")
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="none", prompt="a")
    generator.engine.max_running = 0
    with pytest.raises(openai.RateLimitError):
        client.completions.create(model="story", prompt="a")
    generator.engine.max_running = 1
    generator.engine.failure, generator.engine.fails_after = RuntimeError("a fault"), 1
    with pytest.raises(openai.APIError, match="Internal server error"):
        list(client.completions.create(model="story", prompt="a", stream=True))


def test_openai_leaves_a_stream(generator: RunningGenerator, client: openai.OpenAI) -> None:
    generator.engine.num_free = 1
    with client.completions.create(model="story", prompt="a", stream=True) as stream:
        assert next(iter(stream)).choices[0].text


def test_huggingface_hub_generates(hub: InferenceClient) -> None:
    assert hub.text_generation("a b") == SAID
    assert hub.text_generation("a b", stop=["wo"], return_full_text=True) == "a b one two"


def test_huggingface_hub_asks_for_details(hub: InferenceClient) -> None:
    found = hub.text_generation(
        "a b", details=True, decoder_input_details=True, best_of=2, do_sample=True, top_n_tokens=3, max_new_tokens=3
    )
    assert found.details is not None
    assert found.generated_text == "".join(token.text for token in found.details.tokens)
    assert (found.details.finish_reason, found.details.generated_tokens) == ("length", 3)
    assert len(found.details.prefill) == 3
    assert found.details.best_of_sequences is not None
    assert len(found.details.best_of_sequences) == 1
    assert found.details.top_tokens is not None
    assert [len(tokens) for tokens in found.details.top_tokens] == [3, 3, 3]


def test_huggingface_hub_streams(hub: InferenceClient) -> None:
    assert "".join(hub.text_generation("a b", stream=True, max_new_tokens=len(IDS))) == SAID
    *_, last = hub.text_generation("a b", stream=True, details=True, seed=3, do_sample=True)
    assert last.generated_text == SAID
    assert last.details is not None
    assert (last.details.finish_reason, last.details.seed) == ("eos_token", 3)


def test_huggingface_hub_sees_errors_as_its_own(generator: RunningGenerator, hub: InferenceClient) -> None:
    with pytest.raises(huggingface_hub.errors.ValidationError, match="top_n_tokens"):
        hub.text_generation("a", top_n_tokens=6)
    generator.engine.max_running = 0
    with pytest.raises(huggingface_hub.errors.OverloadedError):
        hub.text_generation("a")
    generator.engine.max_running = 1
    generator.engine.failure, generator.engine.fails_after = RuntimeError("a fault"), 1
    with pytest.raises(huggingface_hub.errors.UnknownError, match="Internal server error"):
        hub.text_generation("a")
    with pytest.raises(huggingface_hub.errors.UnknownError, match="Internal server error"):
        list(hub.text_generation("a", stream=True))
