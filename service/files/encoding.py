"""Bytes to text and back in the encoding they came in."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from charset_normalizer import from_bytes

from service.files.errors import InvalidDocumentError

# The longer marks first: that of UTF-32-LE begins with that of UTF-16-LE.
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_MAX_DETECTION_BYTES = 65_536
_WESTERN = "cp1252"
_BINARY = "".join(map(chr, [*range(9), *range(14, 27), *range(28, 32)]))


@dataclass(frozen=True, slots=True)
class DecodedText:
    """The text of a file; `encode` gives bytes of the same encoding, with the same byte order mark."""

    text: str
    encoding: str
    mark: bytes = b""

    def encode(self, text: str, errors: str = "") -> bytes:
        """The bytes of another text.

        What the encoding has no bytes for is handled by `errors`; without it, the whole file becomes UTF-8 with a byte
        order mark, by which every editor knows it: a Latin-2 file cannot hold every language.
        """
        try:
            return self.mark + text.encode(self.encoding, errors or "strict")
        except UnicodeEncodeError:
            return codecs.BOM_UTF8 + text.encode("utf-8", "replace")


def decode(data: bytes, declared: str | None = None) -> DecodedText:
    """Read text by its byte order mark, else as UTF-8, else in the `declared` encoding, else in the likeliest one.

    InvalidDocumentError for bytes that are no text.
    """
    for mark, encoding in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return DecodedText(_decode(data[len(mark) :], encoding), encoding, mark)
    for candidate in ("utf-8", *([declared] if declared else [])):
        text = _try(data, candidate)
        if text is not None:
            return DecodedText(_checked(text), candidate)
    best = from_bytes(data[:_MAX_DETECTION_BYTES]).best()
    if best is None:
        raise InvalidDocumentError("the file is not text in any known encoding; save it as UTF-8")
    text = _checked(_decode(data, best.encoding))
    # Several code pages read most Western texts alike; of these, the one that is in use can be written with.
    return DecodedText(text, _WESTERN if _try(data, _WESTERN) == text else best.encoding)


def _try(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except (UnicodeDecodeError, LookupError):
        return None


def _decode(data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise InvalidDocumentError(
            f"the file seems to be {encoding} text, but its byte {error.start} is not; save it as UTF-8"
        ) from error


def _checked(text: str) -> str:
    """Every byte is a character in some encoding, so what tells a binary file is its control characters."""
    if text.translate(str.maketrans("", "", _BINARY)) != text:
        raise InvalidDocumentError("the file holds control characters, so it is not text")
    return text
