"""Which code reads which file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath

from service.files.document import Document, TranslateTexts
from service.files.errors import UnsupportedDocumentError
from service.files.html import HtmlDocument
from service.files.office import PresentationDocument, WordDocument
from service.files.subtitles import SubtitleDocument
from service.files.text import TextDocument

_READERS: dict[str, Callable[[bytes], Document]] = {
    ".txt": TextDocument,
    ".html": HtmlDocument,
    ".htm": HtmlDocument,
    ".docx": WordDocument,
    ".pptx": PresentationDocument,
    ".srt": SubtitleDocument,
}
SUPPORTED_FORMATS = tuple(_READERS)
"""The extensions of the files that can be translated, in lower case and with the dot."""


def open_document(name: str, data: bytes) -> Document:
    """Parse `data`, by the extension of `name`.

    Raises UnsupportedDocumentError for any other extension, InvalidDocumentError for content that is not of the format.
    """
    extension = PurePath(name).suffix.lower()
    if extension not in _READERS:
        raise UnsupportedDocumentError(
            f"files of the format {extension or 'without an extension'!r} cannot be translated,"
            f" allowed: {', '.join(SUPPORTED_FORMATS)}"
        )
    return _READERS[extension](data)


def translate_document(name: str, data: bytes, translate: TranslateTexts) -> tuple[str, bytes]:
    """The name and the bytes of the translated file; all its texts go to `translate` in one call.

    A file without text is given back as it is. Raises what `open_document` and `translate` raise.
    """
    document = open_document(name, data)
    texts = document.texts
    translations = translate(texts) if texts else []
    if len(translations) != len(texts):
        raise ValueError(f"{len(translations)} translations were given for {len(texts)} texts")
    return name, document.render(translations)
