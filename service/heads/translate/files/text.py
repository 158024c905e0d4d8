"""Plain text (.txt)."""

from __future__ import annotations

from collections.abc import Sequence

from service.heads.translate.files.encoding import decode


class TextDocument:
    """The whole file is one text; encoding, byte order mark and line ends are kept."""

    def __init__(self, data: bytes) -> None:
        self._source = decode(data)
        self.texts = [self._source.text] if self._source.text.strip() else []

    def render(self, translations: Sequence[str]) -> bytes:
        return self._source.encode("".join(translations) if self.texts else self._source.text)
