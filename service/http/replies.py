"""Vectors to JSON bytes, directly from the arrays: as Python lists they would take longer than the model.

Numbers are written with as many digits as a float32 needs to come back the same.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from starlette.responses import Response

JSON = "application/json"

_VALUES_AT_A_TIME = 50_000


def to_json(value: Any) -> bytes:
    """`value`, with numpy arrays anywhere in it, as JSON."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def to_base64(vector: NDArray[np.float32]) -> str:
    """The numbers as little-endian float32, which is how OpenAI's clients read them."""
    return base64.b64encode(np.ascontiguousarray(vector, dtype="<f4").tobytes()).decode("ascii")


async def list_to_json(vectors: Sequence[NDArray[np.float32]]) -> bytes:
    """A JSON list of arrays. Long lists are serialised in chunks, and the event loop can run other tasks in between."""
    pieces: list[bytes] = []
    num_values = 0
    for vector in vectors:
        parts: list[bytes] = []
        for part in np.array_split(vector, -(-vector.size // _VALUES_AT_A_TIME)):
            if num_values > _VALUES_AT_A_TIME:
                num_values = 0
                await asyncio.sleep(0)
            parts.append(to_json(part)[1:-1])
            num_values += part.size
        pieces.append(b"[" + b",".join(parts) + b"]")
    return b"[" + b",".join(pieces) + b"]"


def json_response(body: bytes, headers: Mapping[str, str] | None = None) -> Response:
    """200 with the JSON `body`."""
    return Response(body, headers=headers, media_type=JSON)
