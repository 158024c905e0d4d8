"""POST /v2/document, DeepL's protocol: a file is sent, its translation asked after, and fetched once."""

from __future__ import annotations

from pathlib import PurePath
from urllib.parse import quote

from fastapi import APIRouter, Response

from service.errors import InvalidRequestError, quoted
from service.heads.translate.deepl_fields import check_common_fields, deepl_fields
from service.heads.translate.deepl_languages import parse_language
from service.heads.translate.deepl_schemas import (
    DocumentHandle,
    DocumentKey,
    DocumentRequest,
    DocumentState,
    DocumentStatus,
    deepl_error_responses,
)
from service.heads.translate.documents import DocumentTranslator
from service.heads.translate.file_routes import AS_A_DOWNLOAD, plain_name, read_upload, uploaded_file
from service.heads.translate.languages import AUTO, Languages
from service.heads.translate.translator import TranslationTask
from service.http.context import ContextDep, FieldsDep, RecordDep
from service.http.jobs import JobState, JobStore
from service.http.request_parsing import RequestFields, validate
from service.http.schemas import request_body

router = APIRouter(tags=["deepl"])

PATH = "/v2/document"
_STATUS: dict[JobState, DocumentState] = {
    JobState.QUEUED: "queued",
    JobState.RUNNING: "translating",
    JobState.DONE: "done",
    JobState.FAILED: "error",
}


@router.post(
    PATH,
    responses=deepl_error_responses(400, 403, 404, 413, 429),
    openapi_extra=request_body(DocumentRequest),
)
async def upload(fields: FieldsDep, context: ContextDep, record: RecordDep) -> DocumentHandle:
    """Begin to translate a file; the answer is how to ask after it."""
    given = deepl_fields(fields)
    given.require("target_lang")
    options = validate(DocumentRequest, given)
    check_common_fields(options)
    file = uploaded_file(fields, options.filename)
    name = plain_name(options.filename or str(file.filename))
    _check_output_format(options.output_format, name)
    languages = context.registry.view(Languages)
    source = options.source_lang
    task = TranslationTask(
        registry=context.registry,
        texts=(),
        source=AUTO if source is None else parse_language(source, languages, parameter="source_lang"),
        target=parse_language(options.target_lang, languages, parameter="target_lang"),
        accepted=True,
    )
    data = await read_upload(file, context.settings)
    documents = context.of(DocumentTranslator)
    job = context.of(JobStore).start(lambda job: documents.work(name, data, task, job), len(data), record)
    return DocumentHandle(document_id=job.id, document_key=job.key)


@router.post(
    f"{PATH}/{{document_id}}",
    responses=deepl_error_responses(400, 403, 404, 429),
    openapi_extra=request_body(DocumentKey),
    response_model_exclude_none=True,
)
async def status(document_id: str, fields: FieldsDep, context: ContextDep) -> DocumentStatus:
    """How far a translation is."""
    job = context.of(JobStore).get(document_id, _key(fields))
    return DocumentStatus(
        document_id=job.id,
        status=_STATUS[job.state],
        seconds_remaining=job.seconds_remaining,
        billed_characters=job.record.num_characters if job.state is JobState.DONE else None,
        error_message=job.message or None,
    )


@router.post(
    f"{PATH}/{{document_id}}/result",
    response_class=Response,
    responses=deepl_error_responses(400, 403, 404, 429, 503),
    openapi_extra=request_body(DocumentKey),
)
async def result(document_id: str, fields: FieldsDep, context: ContextDep) -> Response:
    """The translated file, once."""
    found = context.of(JobStore).take(document_id, _key(fields))
    disposition = f"attachment; filename*=utf-8''{quote(found.name)}"
    return Response(
        found.data,
        media_type="application/octet-stream",
        headers=AS_A_DOWNLOAD | {"Content-Disposition": disposition},
    )


def _key(fields: RequestFields) -> str:
    fields.require("document_key")
    return validate(DocumentKey, fields).document_key


def _check_output_format(wanted: str | None, name: str) -> None:
    has = PurePath(name).suffix.lower().removeprefix(".")
    if wanted is not None and wanted.lower().removeprefix(".") != has:
        raise InvalidRequestError(
            f"Invalid request: output_format parameter: a file keeps its format, {has!r}. Given: {quoted(wanted)!r}",
            parameter="output_format",
        )
