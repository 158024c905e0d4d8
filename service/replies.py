"""Vectors to JSON bytes, straight from the arrays: as lists of numbers they would cost more than the model.

Numbers are written with as many digits as a float32 needs to come back the same.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson
from starlette.responses import Response

from service.embedding import Embeddings, Vectors

JSON = "application/json"

_VALUES_AT_A_TIME = 250_000


def to_json(value: Any) -> bytes:
    """`value`, with numpy arrays anywhere in it, as JSON."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def to_base64(vector: Vectors) -> str:
    """The numbers as little-endian float32, which is how OpenAI's clients read them."""
    return base64.b64encode(np.ascontiguousarray(vector, dtype="<f4").tobytes()).decode("ascii")


async def list_to_json(vectors: Sequence[Vectors]) -> bytes:
    """A JSON list of arrays. Long ones are written a piece at a time, and others have their turn in between."""
    pieces: list[bytes] = []
    num_values = 0
    for vector in vectors:
        if num_values > _VALUES_AT_A_TIME:
            num_values = 0
            await asyncio.sleep(0)
        pieces.append(to_json(vector))
        num_values += vector.size
    return b"[" + b",".join(pieces) + b"]"


def json_response(body: bytes, headers: Mapping[str, str] | None = None) -> Response:
    """200 with `body`, which is JSON already."""
    return Response(body, headers=headers, media_type=JSON)


def timing_headers(embeddings: Embeddings, total_seconds: float) -> dict[str, str]:
    """What TEI's clients read: counts, and whole milliseconds."""
    seconds = {
        "x-total-time": total_seconds,
        "x-tokenization-time": embeddings.tokenization_seconds,
        "x-queue-time": embeddings.queue_seconds,
        "x-inference-time": embeddings.inference_seconds,
    }
    return {
        "x-compute-characters": str(embeddings.num_characters),
        "x-compute-tokens": str(embeddings.num_tokens),
    } | {name: str(int(value * 1000)) for name, value in seconds.items()}
