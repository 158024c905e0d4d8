"""Which code reads which file. Imported by the process that reads files alone (see `worker`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath

from service.heads.translate.files.document import SUPPORTED_FORMATS, Document
from service.heads.translate.files.errors import UnsupportedDocumentError
from service.heads.translate.files.html import HtmlDocument
from service.heads.translate.files.office import PresentationDocument, WordDocument
from service.heads.translate.files.subtitles import SubtitleDocument
from service.heads.translate.files.text import TextDocument

_READERS: dict[str, Callable[[bytes], Document]] = {
    ".txt": TextDocument,
    ".html": HtmlDocument,
    ".htm": HtmlDocument,
    ".docx": WordDocument,
    ".pptx": PresentationDocument,
    ".srt": SubtitleDocument,
}


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
