"""POST /translate_file, LibreTranslate's protocol, and the download of the translated file."""

from __future__ import annotations

from pathlib import PurePath
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request
from fastapi.responses import FileResponse
from starlette.datastructures import UploadFile

from service.errors import BodyTooLargeError, InvalidRequestError, MissingParameterError, quoted
from service.heads.translate.documents import DocumentTranslator
from service.heads.translate.fields import check_languages
from service.heads.translate.file_store import FileStore
from service.heads.translate.files import SUPPORTED_FORMATS
from service.heads.translate.options import not_together
from service.heads.translate.schemas import FileRequest, TranslateFileResponse
from service.heads.translate.translator import TranslationTask
from service.http.context import ContextDep, KeyedFieldsDep, RecordDep
from service.http.disconnect import run_for_client
from service.http.request_parsing import RequestFields
from service.http.schemas import error_responses
from service.settings import Settings

_LONGEST_STEM = 100
AS_A_DOWNLOAD = {"Content-Security-Policy": "sandbox", "Cache-Control": "private, no-store"}
"""Headers of a file of a client's: it is never shown by a browser as a page of ours, whatever is in it."""
_LOOPBACK = ("127.0.0.1", "::1", "localhost")

router = APIRouter(tags=["translate"])


async def get_upload(fields: KeyedFieldsDep) -> UploadFile:
    """The uploaded file, of a format that can be translated."""
    return uploaded_file(fields)


def uploaded_file(fields: RequestFields, name: str | None = None) -> UploadFile:
    """The same of `fields`; `name` is what the file is called where the client says so apart from it."""
    file = fields.values.get("file")
    if not isinstance(file, UploadFile):
        raise MissingParameterError("file")
    name = name or file.filename
    if not name:
        raise InvalidRequestError("Invalid request: empty file name", parameter="file")
    extension = PurePath(name).suffix.lower()
    if extension not in SUPPORTED_FORMATS:
        raise InvalidRequestError(
            f"Invalid request: file format {quoted(extension)!r} is not supported, use {', '.join(SUPPORTED_FORMATS)}",
            parameter="file",
        )
    return file


def _refuse_options(fields: RequestFields) -> None:
    """InvalidRequestError for options of POST /translate that files do not have."""
    for name in ("target_prefix", "temperature", "top_k", "top_p", "seed", "stream"):
        if (value := fields.values.get(name)) is not None:
            raise not_together(name, "a file", value)


async def read_upload(file: UploadFile, settings: Settings) -> bytes:
    """What is in it; BodyTooLargeError for more than a file may have."""
    data = await file.read(settings.max_file_bytes + 1)
    if len(data) > settings.max_file_bytes:
        raise BodyTooLargeError(settings.max_file_bytes, what="file")
    return data


def plain_name(name: str) -> str:
    """The last part of a file name from a client, short and printable, with its extension."""
    last = PurePath(name.replace("\\", "/"))
    stem = "".join(character if character.isprintable() else "_" for character in last.stem)
    return stem[:_LONGEST_STEM] + last.suffix


UploadDep = Annotated[UploadFile, Depends(get_upload)]


@router.post(
    "/translate_file",
    responses=error_responses(400, 403, 413, 429, 503, 504, 507),
    openapi_extra={"requestBody": {"content": {"multipart/form-data": {"schema": FileRequest.model_json_schema()}}}},
)
async def translate_file(
    request: Request, file: UploadDep, fields: KeyedFieldsDep, context: ContextDep, record: RecordDep
) -> TranslateFileResponse:
    """Translate a file; the answer says where the translation can be fetched, for a while."""
    settings = context.settings
    _refuse_options(fields)
    source, target = check_languages(fields, context.registry)
    data = await read_upload(file, settings)
    task = TranslationTask(
        registry=context.registry,
        texts=(),
        source=source,
        target=target,
        deadline=record.started + settings.request_timeout_seconds,
    )
    name, translated = await run_for_client(
        request,
        context.of(DocumentTranslator).translate(plain_name(str(file.filename)), data, task, record),
        timeout_seconds=settings.request_timeout_seconds,
        started=record.started,
    )
    key = await context.of(FileStore).put(name, translated)
    return TranslateFileResponse(translatedFileUrl=download_url(request, settings, key, name))


def download_url(request: Request, settings: Settings, key: str, name: str) -> str:
    """Where a translated file can be fetched: below the public URL of the settings, else at the address that was asked.

    A client may send any Host header. Where it is not an address of this server, the link has no host, so that it never
    leads to a host that only the header names.
    """
    path = f"/download_file/{key}/{quote(name, safe='')}"
    if settings.public_url:
        return settings.public_url + path
    path = settings.root_path + path
    address, _ = request.scope.get("server") or ("", 0)
    try:
        host, port = request.url.hostname, request.url.port
    except ValueError:  # no port, or no address
        return path
    if host is None or host not in {*_LOOPBACK, settings.host.lower(), address}:
        return path
    # Not the header itself, which may hold more than a host and a port.
    authority = (f"[{host}]" if ":" in host else host) + (f":{port}" if port is not None else "")
    return f"{request.url.scheme}://{authority}{path}"


@router.get("/download_file/{key}/{name}", response_class=FileResponse, responses=error_responses(404))
async def download_file(key: str, name: str, context: ContextDep) -> FileResponse:
    """A translated file. The key cannot be guessed, so no other is asked for; the name only makes the URL readable."""
    file = context.of(FileStore).get(key)
    return FileResponse(
        file.path,
        filename=file.name,
        media_type="application/octet-stream",
        headers=AS_A_DOWNLOAD,
    )
