"""Reports as one HTML file that needs nothing else: no network, no other file, no server.

Texts of users are in it, so it is written with care: they stand in a block of JSON, in which no "<" is left, the script
writes them as text only, and the file's own policy allows this very script and style and nothing besides.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np
import orjson

from service.heads.attend.numbers import describe, describe_maps
from service.heads.attend.report import AttentionReport, KindMaps

_STEPS = 65_535


class _Page(NamedTuple):
    before_data: str
    after_data: str
    policy: str


def content_policy() -> str:
    """The Content-Security-Policy of the file, for the header of a response that is shown in a browser."""
    return _page().policy


def to_html(report: AttentionReport) -> bytes:
    """A page with a view of lines and a matrix for every map of the report."""
    values = describe(report)
    values["maps"] = {maps.kind: _entry(maps) for maps in report.maps}
    if report.norms is not None:
        values["norms"] = {maps.kind: _entry(maps) for maps in report.norms}
    # Only "<" can end a script element; in JSON it occurs in strings alone, where it can be escaped.
    data = orjson.dumps(values).decode().replace("<", "\\u003c")
    page = _page()
    return f"{page.before_data}{data}{page.after_data}".encode()


def _entry(maps: KindMaps) -> dict[str, Any]:
    """Numbers in steps of the largest / 65535: two bytes each, and closer than any picture shows."""
    scale = float(maps.weights.max(initial=0.0)) or 1.0
    steps = np.round(maps.weights.astype(np.float64) / scale * _STEPS).astype("<u2")
    return {**describe_maps(maps), "scale": scale, "data": base64.b64encode(steps.tobytes()).decode("ascii")}


@cache
def _page() -> _Page:
    folder = resources.files("service.heads.attend") / "page"
    html, style, script = ((folder / f"page.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js"))
    policy = f"default-src 'none'; img-src data:; script-src '{_hash(script)}'; style-src '{_hash(style)}'"
    page = html.replace("{{policy}}", policy).replace("{{style}}", style).replace("{{script}}", script)
    before, after = page.split("{{data}}")
    return _Page(before, after, policy)


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
    return f"sha256-{digest}"
