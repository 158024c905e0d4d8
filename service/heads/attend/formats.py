"""The formats of an answer, and how a request chooses one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from service.errors import NotAcceptableError, quoted
from service.heads.attend.html import to_html
from service.heads.attend.numbers import to_base64_json, to_json, to_npz
from service.heads.attend.pictures import check_drawing, draw
from service.heads.attend.report import AttentionReport

FormatName = Literal["json", "base64-float32", "base64-float16", "npz", "png", "svg", "html"]


@dataclass(frozen=True, slots=True)
class Format:
    """How a report is written. A picture is `drawn`, which takes long, and has a limit of its own."""

    media_type: str
    extension: str
    write: Callable[[AttentionReport], bytes]
    drawn: bool = False


FORMATS: dict[FormatName, Format] = {
    "json": Format("application/json", "json", to_json),
    "base64-float32": Format("application/json", "json", lambda report: to_base64_json(report, "float32")),
    "base64-float16": Format("application/json", "json", lambda report: to_base64_json(report, "float16")),
    "npz": Format("application/x-npz", "npz", to_npz),
    "png": Format("image/png", "png", lambda report: draw(report, "png"), drawn=True),
    "svg": Format("image/svg+xml", "svg", lambda report: draw(report, "svg"), drawn=True),
    "html": Format("text/html; charset=utf-8", "html", to_html),
}
assert set(FORMATS) == set(get_args(FormatName))

_BY_MEDIA_TYPE: dict[str, FormatName] = {
    "application/json": "json",
    "application/x-npz": "npz",
    "image/png": "png",
    "image/svg+xml": "svg",
    "text/html": "html",
}
"""In the order of preference, where a client takes several alike."""


def choose_format(wanted: FormatName | None, accept: str) -> FormatName:
    """The format that the request names, else the one that its Accept header prefers, else JSON.

    NotAcceptableError lists the media types where the header takes none of them (RFC 9110, section 12.5.1), or says
    that this server draws no pictures.
    """
    name = wanted or _preferred(accept)
    if FORMATS[name].drawn:
        check_drawing()
    return name


def _preferred(accept: str) -> FormatName:
    if not accept.strip():
        return "json"
    ranges = [_read_range(part) for part in accept.split(",") if part.strip()]
    weights = {name: _weight(media_type, ranges) for media_type, name in _BY_MEDIA_TYPE.items()}
    best = max(weights, key=lambda name: weights[name])  # the first of equal ones
    if weights[best] <= 0:
        raise NotAcceptableError(
            f"Accept is {quoted(accept)!r}, this path answers with: {', '.join(_BY_MEDIA_TYPE)}; or name a `format`"
        )
    return best


def _read_range(part: str) -> tuple[str, float]:
    """A media range and its weight; one that cannot be read has the weight 0, so that it chooses nothing."""
    media_range, *parameters = (piece.strip().lower() for piece in part.split(";"))
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return media_range, float(value)
            except ValueError:
                return media_range, 0.0
    return media_range, 1.0


def _weight(media_type: str, ranges: list[tuple[str, float]]) -> float:
    """That of the most specific range that the type is in."""
    for media_range in (media_type, f"{media_type.partition('/')[0]}/*", "*/*"):
        found = [weight for name, weight in ranges if name == media_range]
        if found:
            return max(found)
    return 0.0
