"""Requests by chance, from a seed: ordinary ones with something wrong in them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote_plus

from bench.hold.samples import FORM, JSON, ORDINARY, PAGES, docx, upload
from bench.wire import write_request

_LONGEST = 2_000
_TEXTS = (
    *(
        "",
        " ",
        "\0",
        "a",
        "ä" * 50,
        "\ud800",
        "%00",
        "../../etc/passwd",
        "<script>",
        "{{7*7}}",
        "' OR 1=1 --",
        "\r\nX-A: b",
    ),
    *(
        "true",
        "null",
        "NaN",
        "Infinity",
        "-1",
        "1e999",
        "auto",
        "all",
        "en",
        "de",
        "html",
        "\u202e",
        "\ufeff",
        "💥" * 20,
    ),
    *("http://a.b/?c=d#e", "1.2.3.4", "a@b.c", "&amp;&lt;", "<p>a<b>c</p>", "[INST]", "</s>", "<unk>", "\n\n\n"),
)
_NUMBERS = (0, 1, -1, 2, 7, 255, 1024, 2**31, 2**63, 2**64, -(2**63), 10**30, 0.5, -0.0, 1e308)
_PATHS = (
    *PAGES,
    "//",
    "/%00",
    "/..%2f..",
    "/static/../../x",
    "/v1/models/%2e%2e",
    "/download_file/a/b",
    "/translate/",
    "/x" * 200,
)
_METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "X")
_TYPES = (
    JSON,
    FORM,
    "multipart/form-data; boundary=a",
    "multipart/form-data",
    "text/plain",
    "application/x+json",
    "",
    "a/b;" * 9,
)
_EXTENSIONS = ("txt", "html", "srt", "docx", "pptx", "odt", "odp", "epub", "vtt", "zip", "")
_COSTLY = {"max_new_tokens", "max_tokens", "n", "best_of", "beam_size"}


def fuzz(seed: int) -> Iterator[bytes]:
    """Requests without end, the same for the same seed."""
    generator = random.Random(seed)
    kinds = (_json, _json, _json, _json, _form, _raw, _file, _path, _headers)
    while True:
        yield generator.choice(kinds)(generator)


def _json(generator: random.Random) -> bytes:
    path, body = _mutated(generator)
    content = _dump(body)
    if generator.random() < 0.1:
        content = _flip(generator, content)
    return write_request("POST", path, content, JSON if generator.random() < 0.97 else generator.choice(_TYPES))


def _form(generator: random.Random) -> bytes:
    path, body = _mutated(generator)
    fields = body if isinstance(body, dict) else {"q": body}
    pairs = (
        f"{_encoded(name)}={_encoded(value if isinstance(value, str) else _dump(value).decode())}"
        for name, value in fields.items()
    )
    content = "&".join(pairs)
    if generator.random() < 0.5:
        return write_request("POST", f"{path}?{content[:4_000]}")
    return write_request("POST", path, content.encode(), FORM)


def _encoded(text: str) -> str:
    return quote_plus(text, errors="surrogatepass")


def _raw(generator: random.Random) -> bytes:
    path, _ = generator.choice(list(ORDINARY.values()))
    content = generator.randbytes(generator.randrange(_LONGEST))
    return write_request("POST", path, content, generator.choice(_TYPES))


def _file(generator: random.Random) -> bytes:
    word = docx(
        "<w:document xmlns:w='http://schemas.openxmlformats.org/wordprocessingml/2006/main'><w:body/></w:document>"
    )
    data = generator.choice(
        (
            word,
            b"<p>a</p>",
            b"1\n00:00:01,000 --> 00:00:02,000\nHi\n",
            "ä".encode("utf-16"),
            b"",
            generator.randbytes(300),
        )
    )
    name = generator.choice(_TEXTS)[:30].replace('"', "").replace("\r\n", "").encode("utf-8", "replace").decode()
    fields = {"source": generator.choice(("en", "auto", "xx")), "target": generator.choice(("de", "en", ""))}
    return upload(f"{name}.{generator.choice(_EXTENSIONS)}", _flip(generator, data), fields)


def _path(generator: random.Random) -> bytes:
    content = b"" if generator.random() < 0.7 else generator.randbytes(50)
    return write_request(generator.choice(_METHODS), generator.choice(_PATHS), content, generator.choice(_TYPES))


def _headers(generator: random.Random) -> bytes:
    path, body = generator.choice(list(ORDINARY.values()))
    name = generator.choice(
        ("Accept", "X-Request-ID", "Authorization", "Range", "Origin", "X-Forwarded-For", "Expect", "Cookie")
    )
    value = generator.choice(
        (*_TEXTS, "*/*", "text/html;q=x", "a/b", "Bearer " + "k" * 200, "100-continue", "bytes=0-9,-5")
    )
    value = value.replace("\r", "").replace("\n", "").replace("\0", "").encode("utf-8", "replace").decode()
    return write_request("POST", path, _dump(body), JSON, [(name, value)])


def _mutated(generator: random.Random) -> tuple[str, Any]:
    """A path and the body of an ordinary request, with one to three changes."""
    path, body = generator.choice(list(ORDINARY.values()))
    changed = json.loads(json.dumps(body))
    for _ in range(generator.randrange(1, 4)):
        changed = _change(generator, changed)
    return path, changed


def _change(generator: random.Random, body: Any) -> Any:
    if not isinstance(body, dict):
        return body
    if not body:
        return {generator.choice(_FIELDS): _value(generator)}
    name = generator.choice(list(body))
    draw = generator.random()
    if draw < 0.1:
        del body[name]
    elif draw < 0.2:
        _, other = generator.choice(list(ORDINARY.values()))
        body.update(json.loads(json.dumps(other)))
    elif draw < 0.25:
        return generator.choice(([], [body], None, "a", 1, {}))
    elif draw < 0.4:
        added = generator.choice(_FIELDS)
        body[added] = _value(generator, costly=added in _COSTLY)
    elif isinstance(body[name], dict) and draw < 0.7:
        body[name] = _change(generator, body[name])
    else:
        body[name] = _value(generator, costly=name in _COSTLY)
    return body


def _value(generator: random.Random, *, costly: bool = False, depth: int = 0) -> Any:
    """Anything that JSON can spell; a small number where more would only cost time."""
    if costly and generator.random() < 0.6:
        return generator.randrange(-1, 5)
    kinds: tuple[Callable[[], Any], ...] = (
        lambda: generator.choice(_TEXTS),
        lambda: generator.choice(_NUMBERS),
        lambda: generator.choice((True, False, None)),
        lambda: generator.choice("aä\0 <&.\n") * generator.randrange(_LONGEST),
        lambda: [_value(generator, depth=depth + 1) for _ in range(generator.randrange(4))],
        lambda: {generator.choice(_TEXTS): _value(generator, depth=depth + 1) for _ in range(generator.randrange(4))},
        lambda: [generator.randrange(-5, 40_000) for _ in range(generator.randrange(300))],
    )
    return generator.choice(kinds if depth < 3 else kinds[:3])()


def _dump(body: Any) -> bytes:
    return json.dumps(body).encode()


def _flip(generator: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(min(len(changed), generator.randrange(4))):
        changed[generator.randrange(len(changed))] = generator.randrange(256)
    return bytes(changed)


_FIELDS = (
    *(
        "q",
        "source",
        "target",
        "format",
        "alternatives",
        "api_key",
        "beam_size",
        "length_penalty",
        "max_new_tokens",
        "model",
    ),
    *(
        "inputs",
        "truncate",
        "truncation_direction",
        "prompt_name",
        "normalize",
        "dimensions",
        "input",
        "encoding_format",
    ),
    *(
        "prompt",
        "max_tokens",
        "n",
        "best_of",
        "echo",
        "logprobs",
        "temperature",
        "top_p",
        "top_k",
        "stop",
        "seed",
        "stream",
    ),
    *(
        "logit_bias",
        "messages",
        "parameters",
        "stream_options",
        "presence_penalty",
        "suffix",
        "tools",
        "response_format",
    ),
    *(
        "layers",
        "heads",
        "aggregate",
        "norms",
        "words",
        "alignment",
        "kind",
        "target_text",
        "ids",
        "add_special_tokens",
    ),
)
