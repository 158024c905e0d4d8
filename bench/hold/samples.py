"""Files and bodies that are made to harm, and ordinary requests of every kind."""

from __future__ import annotations

import io
import json
import random
import zipfile
from typing import Any

from bench.wire import write_request

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
_BOUNDARY = "----hold"
MULTIPART = f"multipart/form-data; boundary={_BOUNDARY}"

_WORD_NAMESPACE = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'

ORDINARY: dict[str, tuple[str, dict[str, Any]]] = {
    "translate": ("/translate", {"q": "The house is old.", "source": "en", "target": "de"}),
    "translate a list": ("/translate", {"q": ["Good morning.", "Thank you."], "source": "auto", "target": "de"}),
    "translate with a beam": (
        "/translate",
        {"q": "We will meet again at 10:30.", "source": "en", "target": "de", "beam_size": 4, "alternatives": 2},
    ),
    "translate html": (
        "/translate",
        {"q": "<p>The <b>old</b> house.</p>", "source": "en", "target": "de", "format": "html"},
    ),
    "detect": ("/detect", {"q": "Wo ist der Bahnhof?"}),
    "embed": ("/embed", {"inputs": ["The house is old.", "Das Haus ist alt."]}),
    "embed tokens": ("/embed_all", {"inputs": "The house is old."}),
    "embeddings": ("/v1/embeddings", {"input": "The house is old.", "model": "embed-en-de"}),
    "tokenize": ("/tokenize", {"inputs": "The house is old."}),
    "decode": ("/decode", {"ids": [10, 20, 30]}),
    "generate": ("/generate", {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 8}}),
    "stream": ("/generate_stream", {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 8}}),
    "complete": ("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 8, "logprobs": 2, "echo": True}),
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}),
    "attention": ("/attention", {"q": "The house is old.", "source": "en", "target": "de", "alignment": True}),
    "attention as html": ("/attention", {"inputs": "The house is old.", "format": "html"}),
    "attention as a picture": ("/attention", {"prompt": "The house", "layers": [0], "heads": [0], "format": "png"}),
}
"""A path and a body for every kind of request with JSON."""

PAGES = (
    "/",
    "/languages",
    "/info",
    "/health",
    "/metrics",
    "/openapi.json",
    "/docs",
    "/v1/models",
    "/frontend/settings",
)


def post_json(path: str, body: Any) -> bytes:
    """A POST of `body`, or of bytes that stand for it."""
    content = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode()
    return write_request("POST", path, content, JSON)


def ordinary_requests() -> list[bytes]:
    """One request of every kind, files among them."""
    text = "The house is old.\n\nWe will meet again.\n"
    files = [
        ("a.txt", text.encode()),
        ("a.srt", _subtitle(text.split("\n", maxsplit=1)[0]).encode()),
        ("a.docx", docx(_word(text))),
    ]
    files.append(("a.html", f"<html><body><p>{text}</p></body></html>".encode()))
    requests = [post_json(path, body) for path, body in ORDINARY.values()]
    requests += [write_request("GET", path) for path in PAGES]
    return requests + [upload(name, data) for name, data in files]


def upload(name: str, data: bytes, fields: dict[str, str] | None = None) -> bytes:
    """A POST of a file to /translate_file."""
    parts = "".join(
        f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="{field}"\r\n\r\n{value}\r\n'
        for field, value in (fields or {"source": "en", "target": "de"}).items()
    )
    head = f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    content = (parts + head).encode() + data + f"\r\n--{_BOUNDARY}--\r\n".encode()
    return write_request("POST", "/translate_file", content, MULTIPART)


def _subtitle(text: str) -> str:
    return f"1\n00:00:01,000 --> 00:00:02,000\n{text}\n"


def _word(text: str) -> str:
    paragraphs = "".join(f"<w:p><w:r><w:t>{line}</w:t></w:r></w:p>" for line in text.split("\n"))
    return f"<w:document {_WORD_NAMESPACE}><w:body>{paragraphs}</w:body></w:document>"


def docx(document: str) -> bytes:
    """A Word file whose text is the XML `document`."""
    content_types = (
        '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
        '<Default Extension="xml" ContentType="application/xml"/></Types>'
    )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", content_types)
        archive.writestr("word/document.xml", document)
    return buffer.getvalue()


def hostile_files() -> dict[str, list[tuple[str, bytes]]]:
    """Names and contents of files, by what is wrong with them."""
    cue = "1\n00:00:01,000 --> 00:00:02,000\nHi"
    whole = docx(_word("The house is old."))
    entities = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;">]><x>&b;</x>'
    return {
        "subtitles of line breaks": [("a.srt", (cue + "\n" * count).encode()) for count in (2500, 8000, 1_000_000)],
        "subtitles of white space": [("a.srt", (cue + " \t" * 400_000).encode()), ("a.srt", b"-->" * 600_000)],
        "24 million elements": [("a.docx", docx("<x>" + "<a/>" * 24_000_000 + "</x>"))],
        "100,000 levels of elements": [("a.docx", docx("<x>" * 100_000 + "</x>" * 100_000))],
        "a foreign root, entities": [("a.docx", docx("<html><p>a</p></html>")), ("a.docx", docx(entities))],
        "damaged archives": [(f"a.{kind}", data) for kind in ("docx", "pptx", "odt") for data in _damaged(whole)],
        "a wrong charset": [("a.html", b"<meta charset=undefined>\xff" * 100), ("a.txt", bytes(range(256)) * 100)],
        "300,000 open tags in a file": [("a.html", b"<div>" * 300_000 + b"a"), ("a.html", b"<" * 1_000_000)],
    }


def _damaged(data: bytes) -> list[bytes]:
    """`data` with a byte changed in its end and its beginning, cut short, and with its directory elsewhere."""
    generator = random.Random(0)
    damaged = [data[: len(data) // 2], data[:-10], b"", b"PK"]
    for _ in range(20):
        changed = bytearray(data)
        changed[-generator.randrange(1, 200)] = generator.randrange(256)
        damaged.append(bytes(changed))
    end = data.rindex(b"PK\5\6")
    damaged.append(data[: end + 16] + b"\xff\xff\xff\x7f" + data[end + 20 :])
    return damaged
