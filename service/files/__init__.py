"""Whole files: what is text in them is translated, everything else stays as it is. One module a format.

Nothing here knows HTTP or a model; texts go out and translations come in through one callable.
"""

from service.files.errors import DocumentError, InvalidDocumentError, UnsupportedDocumentError
from service.files.registry import SUPPORTED_FORMATS, open_document, translate_document

__all__ = [
    "SUPPORTED_FORMATS",
    "DocumentError",
    "InvalidDocumentError",
    "UnsupportedDocumentError",
    "open_document",
    "translate_document",
]
