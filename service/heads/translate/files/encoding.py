"""Bytes to text and back in the encoding they came in."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

from charset_normalizer import from_bytes

from service.heads.translate.files.errors import InvalidDocumentError

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
_BINARY = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_DECLARABLE = frozenset(
    codecs.lookup(name).name
    for name in (
        *("utf-8", "utf-16-le", "utf-16-be", "ascii", "latin-1", "iso8859-2", "iso8859-3", "iso8859-4", "iso8859-5"),
        *("iso8859-6", "iso8859-7", "iso8859-8", "iso8859-9", "iso8859-10", "iso8859-13", "iso8859-14", "iso8859-15"),
        *("iso8859-16", "cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258"),
        *("cp866", "cp874", "tis-620", "koi8-r", "koi8-u", "mac-roman", "mac-cyrillic", "gb2312", "gbk", "gb18030"),
        *("big5", "big5hkscs", "euc-jp", "shift_jis", "cp932", "iso2022_jp", "euc-kr", "cp949"),
    )
)
"""The encodings of the WHATWG's Encoding Standard. Python's codecs have more names, and some are no encoding of text:
"undefined" refuses everything, "punycode" and "idna" take time that is quadratic in the length."""


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

    A declared name that is no encoding of text is ignored, as browsers do. InvalidDocumentError for bytes that are no
    text.
    """
    for mark, encoding in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return DecodedText(_decode(data[len(mark) :], encoding), encoding, mark)
    for candidate in ("utf-8", *([declared] if declared and _is_encoding(declared) else [])):
        text = _try(data, candidate)
        if text is not None:
            return DecodedText(_checked(text), candidate)
    best = from_bytes(data[:_MAX_DETECTION_BYTES]).best()
    if best is None:
        raise InvalidDocumentError("the file is not text in any known encoding; save it as UTF-8")
    text = _checked(_decode(data, best.encoding))
    # Several code pages read most Western texts alike; of these, the one that is in use can be written with.
    return DecodedText(text, _WESTERN if _try(data, _WESTERN) == text else best.encoding)


def _is_encoding(name: str) -> bool:
    try:
        return codecs.lookup(name).name in _DECLARABLE
    except LookupError:
        return False


def _try(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except UnicodeError:
        return None


def _decode(data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeError as error:
        place = f"its byte {error.start}" if isinstance(error, UnicodeDecodeError) else "some of it"
        raise InvalidDocumentError(
            f"the file seems to be {encoding} text, but {place} is not; save it as UTF-8"
        ) from error


def _checked(text: str) -> str:
    """Every byte is a character in some encoding, so what tells a binary file is its control characters."""
    if _BINARY.search(text):
        raise InvalidDocumentError("the file holds control characters, so it is not text")
    return text
