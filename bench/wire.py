"""HTTP/1.1 straight on a socket, because a client library takes as much of the cores as a server does."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable

from bench.side import BenchError

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
_WITHOUT_BODY = (204, 304)


def write_request(
    method: str, path: str, content: bytes = b"", content_type: str = "", headers: Iterable[tuple[str, str]] = ()
) -> bytes:
    """A request as it goes over the wire."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(content)}"]
    lines += [f"Content-Type: {content_type}"] if content_type else []
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join(lines).encode("utf-8", "surrogateescape") + b"\r\n\r\n" + content


async def read_answer(reader: asyncio.StreamReader, *, has_body: bool = True) -> tuple[int, bytes]:
    """Status and body of an answer, the body without its chunks' sizes. `has_body` is False for a HEAD request."""
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    if status == 100:  # the server wants the body, which is on its way
        return await read_answer(reader, has_body=has_body)
    if not has_body or status in _WITHOUT_BODY:
        return status, b""
    if (length := _LENGTH.search(head)) is not None:
        return status, await reader.readexactly(int(length[1]))
    if _CHUNKED.search(head) is None:
        raise BenchError(f"an answer without a content-length cannot be read here: {head[:300]!r}")
    chunks: list[bytes] = []
    while size := int((await reader.readline()).split(b";")[0], 16):
        chunks.append(await reader.readexactly(size))
        await reader.readexactly(2)
    await reader.readexactly(2)
    return status, b"".join(chunks)
