"""HTML files (.html, .htm)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from service.heads.translate.files.encoding import decode
from service.heads.translate.text.html import find_runs

_DECLARED_ENCODING = re.compile(rb"<meta[^>]{0,200}?charset\s{0,9}=\s{0,9}[\"']?([\w.:-]{2,40})", re.IGNORECASE)
_PRESCAN_BYTES = 1024
"""The HTML standard looks for the declaration in as many bytes (13.2.3.2, prescan a byte stream)."""


class HtmlDocument:
    """The text between the tags; everything else keeps every byte."""

    def __init__(self, data: bytes) -> None:
        declared = _DECLARED_ENCODING.search(data[:_PRESCAN_BYTES])
        self._source = decode(data, declared[1].decode("ascii") if declared else None)
        self._runs = find_runs(self._source.text)
        self.texts = self._runs.segments

    def render(self, translations: Sequence[str]) -> bytes:
        # A character that the encoding lacks has a reference in HTML, so the declared encoding stays true.
        return self._source.encode(self._runs.join(translations), errors="xmlcharrefreplace")
