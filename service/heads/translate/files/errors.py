"""What can be wrong with a document.

DocumentError
├── UnsupportedDocumentError   no code for files of this name
└── InvalidDocumentError       a file that is not what its name says, is damaged, or would expand beyond bounds
"""

from __future__ import annotations

from service.errors import InvalidRequestError


class DocumentError(InvalidRequestError):
    """Base of every error about a document; the message is for the person who sent it."""


class UnsupportedDocumentError(DocumentError):
    """The name's extension is not that of a format that can be translated."""


class InvalidDocumentError(DocumentError):
    """The content cannot be read as its format, or is larger than allowed once it is unpacked."""
