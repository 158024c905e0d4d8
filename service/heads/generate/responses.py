"""Continuations in the words of OpenAI's /v1/responses: the answer, and the events of a stream."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

from service.heads.generate.schemas.responses import ResponsesRequest
from service.heads.generate.text_stream import FinishReason, TextStream
from service.http.records import RequestRecord
from service.http.replies import to_json

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ResponseWriter:
    """Writes one response: all that its events have in common."""

    options: ResponsesRequest
    model: str
    created: int = field(default_factory=lambda: int(time.time()))
    key: str = field(default_factory=lambda: secrets.token_hex(24))

    def response(self, status: str, output: list[Json], usage: Json | None = None) -> Json:
        """The response as a whole; its `status` says how far it is."""
        options = self.options
        return {
            "id": f"resp_{self.key}",
            "object": "response",
            "created_at": self.created,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": options.instructions,
            "max_output_tokens": options.max_output_tokens,
            "metadata": options.metadata or {},
            "model": self.model,
            "output": output,
            "parallel_tool_calls": False,
            "previous_response_id": None,
            "store": False,
            "temperature": options.temperature,
            "text": {"format": {"type": "text"}},
            "tool_choice": "none",
            "tools": [],
            "top_p": options.top_p,
            "truncation": options.truncation,
            "usage": usage,
        }

    def finished(self, text: str, reason: FinishReason | None, record: RequestRecord) -> Json:
        """The response when all its `text` is there."""
        status = _status(reason)
        usage = {
            "input_tokens": record.num_input_tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": record.num_output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": record.num_input_tokens + record.num_output_tokens,
        }
        return self.response(status, [self.message(status, [_part(text)])], usage)

    def message(self, status: str, content: list[Json]) -> Json:
        """The only item of the output."""
        return {
            "id": f"msg_{self.key}",
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": content,
        }

    async def events(self, stream: TextStream, record: RequestRecord) -> AsyncGenerator[bytes]:
        """The events of a stream, in the order that OpenAI's clients know."""
        number = -1

        def event(kind: str, **fields: Any) -> bytes:
            nonlocal number
            number += 1
            return b"event: %b\ndata: %b" % (
                kind.encode(),
                to_json({"type": kind, "sequence_number": number, **fields}),
            )

        place = {"item_id": f"msg_{self.key}", "output_index": 0, "content_index": 0}
        begun = self.response("in_progress", [])
        yield event("response.created", response=begun)
        yield event("response.in_progress", response=begun)
        yield event("response.output_item.added", output_index=0, item=self.message("in_progress", []))
        yield event("response.content_part.added", **place, part=_part(""))
        async for token in stream:
            if token.text:
                yield event("response.output_text.delta", **place, delta=token.text, logprobs=[])
        text, status = stream.text, _status(stream.finish_reason)
        yield event("response.output_text.done", **place, text=text, logprobs=[])
        yield event("response.content_part.done", **place, part=_part(text))
        yield event("response.output_item.done", output_index=0, item=self.message(status, [_part(text)]))
        yield event(f"response.{status}", response=self.finished(text, stream.finish_reason, record))


def _status(reason: FinishReason | None) -> str:
    return "incomplete" if reason == "length" else "completed"


def _part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
