"""What every format gives: its texts, and the file again with other texts in their place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

SUPPORTED_FORMATS = (".txt", ".html", ".htm", ".docx", ".pptx", ".srt")
"""The extensions of the files that can be translated, in lower case and with the dot."""


class Document(Protocol):
    """A parsed file. `render` gives a file of the same format and takes one string for each of `texts`."""

    @property
    def texts(self) -> list[str]: ...

    def render(self, translations: Sequence[str]) -> bytes: ...
