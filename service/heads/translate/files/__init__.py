"""Whole files: what is text in them is translated, everything else stays as it is. One module a format.

Nothing here knows HTTP or a model. `FilePool` has a file read and written in a process of its own; only that process
imports the parsers (docs/decisions/0141-files-in-processes.md).
"""

from service.heads.translate.files.document import SUPPORTED_FORMATS
from service.heads.translate.files.errors import DocumentError, InvalidDocumentError, UnsupportedDocumentError

__all__ = [
    "SUPPORTED_FORMATS",
    "DocumentError",
    "InvalidDocumentError",
    "UnsupportedDocumentError",
]
