"""POST /translate_file, LibreTranslate's protocol, and the download of what came of it."""

from __future__ import annotations

from pathlib import PurePath
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import FileResponse
from starlette.datastructures import UploadFile

from service.disconnect import run_for_client
from service.errors import BodyTooLargeError, InvalidRequestError, MissingParameterError, quoted
from service.files import SUPPORTED_FORMATS
from service.routes.translate import check_languages
from service.schemas.common import error_responses
from service.schemas.translate import FileRequest, TranslateFileResponse
from service.services import FieldsDep, RecordDep, ServicesDep
from service.translation import TranslationTask

_LONGEST_STEM = 100

router = APIRouter(tags=["translate"])


async def get_upload(fields: FieldsDep) -> UploadFile:
    """The uploaded file, of a format that can be translated."""
    file = fields.values.get("file")
    if not isinstance(file, UploadFile):
        raise MissingParameterError("file")
    if not file.filename:
        raise InvalidRequestError("Invalid request: empty file name", parameter="file")
    extension = PurePath(file.filename).suffix.lower()
    if extension not in SUPPORTED_FORMATS:
        raise InvalidRequestError(
            f"Invalid request: file format {quoted(extension)!r} is not supported, use {', '.join(SUPPORTED_FORMATS)}",
            parameter="file",
        )
    return file


def plain_name(name: str) -> str:
    """The last part of a file name from a client, short and printable, with its extension."""
    last = PurePath(name.replace("\\", "/"))
    stem = "".join(character if character.isprintable() else "_" for character in last.stem)
    return stem[:_LONGEST_STEM] + last.suffix


UploadDep = Annotated[UploadFile, Depends(get_upload)]


@router.post(
    "/translate_file",
    responses=error_responses(400, 403, 413, 429, 503, 504),
    openapi_extra={"requestBody": {"content": {"multipart/form-data": {"schema": FileRequest.model_json_schema()}}}},
)
async def translate_file(
    request: Request, file: UploadDep, fields: FieldsDep, services: ServicesDep, record: RecordDep
) -> TranslateFileResponse:
    """Translate a file; the answer says where the translation can be fetched, for a while."""
    settings = services.settings
    source, target = check_languages(fields, services.registry)
    data = await file.read(settings.max_file_bytes + 1)
    if len(data) > settings.max_file_bytes:
        raise BodyTooLargeError(settings.max_file_bytes, what="file")
    task = TranslationTask(
        texts=(), source=source, target=target, deadline=record.started + settings.request_timeout_seconds
    )
    name, translated = await run_for_client(
        request,
        services.documents.translate(plain_name(str(file.filename)), data, task, record),
        timeout_seconds=settings.request_timeout_seconds,
        started=record.started,
    )
    key = await services.files.put(name, translated)
    return TranslateFileResponse(translatedFileUrl=str(request.url_for("download_file", key=key, name=name)))


@router.get("/download_file/{key}/{name}", response_class=FileResponse, responses=error_responses(404))
async def download_file(key: str, name: str, services: ServicesDep) -> FileResponse:
    """A translated file. The key cannot be guessed, so no other is asked for; the name only makes the URL readable."""
    file = services.files.get(key)
    return FileResponse(
        file.path,
        filename=file.name,
        # Never shown by a browser as a page of ours, whatever is in it.
        media_type="application/octet-stream",
        headers={"Content-Security-Policy": "sandbox", "Cache-Control": "private, no-store"},
    )
