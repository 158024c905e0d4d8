"""Zip archives of documents, read with bounds: what is small on the wire may be huge once it is unpacked."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping

from lxml import etree

from service.files.errors import InvalidDocumentError

MAX_EXPANDED_BYTES = 100 * 1024 * 1024
MAX_ENTRIES = 10_000
_MAX_RATIO = 200
_RATIO_COUNTS_FROM_BYTES = 1024 * 1024


class Archive:
    """The entries of a zip file in order. InvalidDocumentError for one that is damaged, encrypted or too large."""

    def __init__(self, data: bytes) -> None:
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                self._infos = archive.infolist()
                _check_size(self._infos, len(data))
                # zipfile never unpacks more than an entry declares, so the check above holds for the content too.
                self._contents = {info.filename: archive.read(info) for info in self._infos}
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, OSError) as error:
            raise InvalidDocumentError(f"the file is damaged or encrypted: {error}") from error

    @property
    def names(self) -> list[str]:
        return list(self._contents)

    def parse(self, name: str) -> etree._Element:
        """The root of an XML entry. Office formats forbid a document type, so one is refused: no entity is expanded."""
        # huge_tree stays off: it is libxml2's own guard against deep and exploding documents.
        parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
        try:
            root = etree.fromstring(self._contents[name], parser)
        except etree.XMLSyntaxError as error:
            raise InvalidDocumentError(f"{name} in the file is not well-formed XML: {error}") from error
        if root.getroottree().docinfo.doctype:
            raise InvalidDocumentError(f"{name} in the file declares a document type, which is not allowed")
        return root

    def write(self, changed: Mapping[str, bytes]) -> bytes:
        """The archive with the entries in `changed` replaced; all else, dates too, stays as it was."""
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for info in self._infos:
                content = changed.get(info.filename, self._contents[info.filename])
                archive.writestr(info, content, compress_type=info.compress_type)
        return out.getvalue()


def _check_size(infos: list[zipfile.ZipInfo], size: int) -> None:
    if len(infos) > MAX_ENTRIES:
        raise InvalidDocumentError(f"the file holds {len(infos)} entries, allowed: {MAX_ENTRIES}")
    expanded = sum(info.file_size for info in infos)
    if expanded > MAX_EXPANDED_BYTES:
        raise InvalidDocumentError(f"the file unpacks to {expanded} bytes, allowed: {MAX_EXPANDED_BYTES}")
    if expanded > max(_RATIO_COUNTS_FROM_BYTES, _MAX_RATIO * size):
        raise InvalidDocumentError(f"the file unpacks to {expanded // size} times its size, allowed: {_MAX_RATIO}")
