"""Zip archives of documents, read with limits on their unpacked size."""

from __future__ import annotations

import io
import lzma
import struct
import zipfile
import zlib
from collections.abc import Mapping

from lxml import etree

from service.errors import quoted
from service.heads.translate.files.errors import InvalidDocumentError

MAX_EXPANDED_BYTES = 100 * 1024 * 1024
MAX_ENTRIES = 10_000
MAX_ELEMENTS = 1_000_000
"""XML elements of one file, over all its parts."""
MAX_DEPTH = 200
_MAX_RATIO = 200
_RATIO_COUNTS_FROM_BYTES = 1024 * 1024
_CHUNK_BYTES = 64 * 1024

# What zipfile raises for a damaged archive. It checks little: a wrong offset is a ValueError ("negative seek value") or
# an OverflowError, a short field a struct.error, encryption a RuntimeError, an unknown method a NotImplementedError.
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    ArithmeticError,
    EOFError,
    IndexError,
    NotImplementedError,
    OSError,
    RuntimeError,
    ValueError,
)


class Archive:
    """The entries of a zip file in order. InvalidDocumentError for one that is damaged, encrypted or too large."""

    def __init__(self, data: bytes) -> None:
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                self._infos = archive.infolist()
                _check_size(self._infos, len(data))
                # zipfile never unpacks more than an entry declares, so the check above holds for the content too.
                self._contents = {info.filename: archive.read(info) for info in self._infos}
        except InvalidDocumentError:
            raise
        except _DAMAGED as error:
            raise InvalidDocumentError(f"the file is damaged or encrypted: {error}") from error
        self._num_elements = 0

    @property
    def names(self) -> list[str]:
        return list(self._contents)

    def parse(self, name: str, root_tag: str) -> etree._Element:
        """The root of an XML entry, which must be `root_tag`.

        Elements are counted while they are read, so that no more than MAX_ELEMENTS are ever in memory. Office formats
        forbid a document type, so one is refused: no entity is expanded.
        """
        # huge_tree stays off: it is libxml2's own guard against deep and exploding documents.
        parser = etree.XMLPullParser(
            ("start", "end"), resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False
        )
        content = self._contents[name]
        depth = 0
        try:
            for start in range(0, len(content), _CHUNK_BYTES):
                parser.feed(content[start : start + _CHUNK_BYTES])
                for event, element in parser.read_events():
                    if event == "end":
                        depth -= 1
                        continue
                    if depth == 0:
                        _check_root(name, element, root_tag)
                    depth += 1
                    self._num_elements += 1
                    self._check_count(name, depth)
            return parser.close()
        except etree.XMLSyntaxError as error:
            raise InvalidDocumentError(f"{name} in the file is not well-formed XML: {error}") from error

    def write(self, changed: Mapping[str, bytes]) -> bytes:
        """The archive with the entries in `changed` replaced; all else, dates too, stays as it was."""
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for info in self._infos:
                content = changed.get(info.filename, self._contents[info.filename])
                archive.writestr(info, content, compress_type=info.compress_type)
        return out.getvalue()

    def _check_count(self, name: str, depth: int) -> None:
        if self._num_elements > MAX_ELEMENTS:
            raise InvalidDocumentError(f"the file has more than {MAX_ELEMENTS} XML elements")
        if depth > MAX_DEPTH:
            raise InvalidDocumentError(f"{name} in the file is nested deeper than {MAX_DEPTH} XML elements")


def _check_root(name: str, root: etree._Element, root_tag: str) -> None:
    if root.getroottree().docinfo.doctype:
        raise InvalidDocumentError(f"{name} in the file declares a document type, which is not allowed")
    if root.tag != root_tag:
        raise InvalidDocumentError(
            f"{name} in the file is not a document of its kind: its root is {quoted(root.tag)}, not {root_tag}"
        )


def _check_size(infos: list[zipfile.ZipInfo], size: int) -> None:
    if len(infos) > MAX_ENTRIES:
        raise InvalidDocumentError(f"the file holds {len(infos)} entries, allowed: {MAX_ENTRIES}")
    if len({info.filename for info in infos}) < len(infos):
        raise InvalidDocumentError("the file holds two entries of one name")
    expanded = sum(info.file_size for info in infos)
    if expanded > MAX_EXPANDED_BYTES:
        raise InvalidDocumentError(f"the file unpacks to {expanded} bytes, allowed: {MAX_EXPANDED_BYTES}")
    if expanded > max(_RATIO_COUNTS_FROM_BYTES, _MAX_RATIO * size):
        raise InvalidDocumentError(f"the file unpacks to {expanded // size} times its size, allowed: {_MAX_RATIO}")
