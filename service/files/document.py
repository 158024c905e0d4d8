"""What every format gives: its texts, and the file again with other texts in their place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

TranslateTexts = Callable[[list[str]], list[str]]
"""One translation for each plain text, in order, with its white space, line breaks and links kept."""


class Document(Protocol):
    """A parsed file. `render` gives a file of the same format and takes one string for each of `texts`."""

    @property
    def texts(self) -> list[str]: ...

    def render(self, translations: Sequence[str]) -> bytes: ...
