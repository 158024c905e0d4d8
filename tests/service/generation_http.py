"""A running server with a generator, and what tests say to it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import httpx

from tests.service.generation_fakes import ScriptedEngine


@dataclass
class RunningGenerator:
    """A server with a model that continues texts, its engine, and a client for it."""

    url: str
    engine: ScriptedEngine
    client: httpx.Client

    def generate(self, inputs: Any = "a b", **parameters: Any) -> httpx.Response:
        return self.client.post("/generate", json={"inputs": inputs, "parameters": parameters})

    def generate_stream(self, inputs: Any = "a b", **parameters: Any) -> httpx.Response:
        return self.client.post("/generate_stream", json={"inputs": inputs, "parameters": parameters})

    def complete(self, prompt: Any = "a b", **fields: Any) -> httpx.Response:
        return self.client.post("/v1/completions", json={"model": "story", "prompt": prompt} | fields)

    def chat(self, *messages: Any, **fields: Any) -> httpx.Response:
        return self.client.post("/v1/chat/completions", json={"model": "story", "messages": messages} | fields)


def events(response: httpx.Response, prefix: str = "data:") -> list[Any]:
    """The events of a stream, which has no other lines; the last of OpenAI's stays a text."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["x-accel-buffering"] == "no"
    assert "content-length" not in response.headers
    blocks = response.text.split("\n\n")
    assert blocks.pop() == ""
    assert all(block.startswith(prefix) and "\n" not in block for block in blocks)
    values = [block.removeprefix(prefix) for block in blocks]
    return [value if value == "[DONE]" else json.loads(value) for value in values]
