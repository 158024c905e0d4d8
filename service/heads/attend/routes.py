"""POST /attention, a protocol of our own: attention maps."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from service.errors import EmptyInputError, InputError
from service.heads.attend.attender import Attender
from service.heads.attend.formats import FORMATS, FormatName, choose_format
from service.heads.attend.html import content_policy
from service.heads.attend.pictures import check_picture
from service.heads.attend.schemas import ATTENTION_EXAMPLES, AttentionBody, AttentionResponse
from service.heads.attend.selection import Wishes
from service.heads.attend.task import AttentionTask, DecoderInput, EncoderInput, TranslationInput
from service.heads.attend.word_alignment import AlignmentWishes
from service.heads.translate.fields import check_languages
from service.heads.translate.job import SearchOptions
from service.http.context import Context, ContextDep, KeyedFieldsDep, RecordDep
from service.http.disconnect import run_for_client
from service.http.records import RequestRecord
from service.http.request_parsing import RequestFields, validate
from service.http.schemas import error_responses, request_body

router = APIRouter(tags=["attention"])

_INPUTS = {"q": "a text to translate", "inputs": "texts for an encoder", "prompt": "a text for a decoder"}

_BELONGS_TO = {
    "source": "q",
    "target": "q",
    "target_text": "q",
    "beam_size": "q",
    "alignment": "q",
    "prompt_name": "inputs",
}
"""Fields that belong to one kind of input."""

_CONTENT: dict[str, dict[str, str]] = {
    entry.media_type.partition(";")[0]: {} for name, entry in FORMATS.items() if name != "json"
}


@router.post(
    "/attention",
    response_class=Response,
    responses={
        **error_responses(400, 401, 403, 404, 406, 413, 422, 424, 429, 503, 504),
        200: {"model": AttentionResponse, "content": _CONTENT},
    },
    openapi_extra=request_body(AttentionBody, examples=ATTENTION_EXAMPLES),
)
async def attention(request: Request, fields: KeyedFieldsDep, context: ContextDep, record: RecordDep) -> Response:
    """The attention of a model for a translation, a text, a pair of texts, or a prompt, in one of seven formats."""
    body = validate(AttentionBody, fields, InputError)
    name = choose_format(body.format, request.headers.get("accept", ""))
    task = _task(fields, body, name, context, record)
    content = await run_for_client(
        request,
        _answer(task, name, context, record),
        timeout_seconds=context.settings.request_timeout_seconds,
        started=record.started,
    )
    return Response(content, media_type=FORMATS[name].media_type, headers=_headers(name))


async def _answer(task: AttentionTask, name: FormatName, context: Context, record: RequestRecord) -> bytes:
    attender = context.of(Attender)
    report = await attender.attend(task, record)
    written = FORMATS[name]
    if written.drawn:
        return await attender.rendering.submit(lambda: written.write(report))
    num_values = sum(maps.weights.size for maps in report.maps)
    return await attender.rendering.run(num_values, lambda: written.write(report))


def _headers(name: FormatName) -> dict[str, str]:
    headers = {"Vary": "Accept"}
    if name not in ("json", "base64-float32", "base64-float16"):
        headers["Content-Disposition"] = f'inline; filename="attention.{FORMATS[name].extension}"'
    if name == "html":
        headers["Content-Security-Policy"] = f"{content_policy()}; frame-ancestors 'none'"
    return headers


def _task(
    fields: RequestFields, body: AttentionBody, name: FormatName, context: Context, record: RequestRecord
) -> AttentionTask:
    settings = context.settings
    alignment = body.alignment
    return AttentionTask(
        registry=context.registry,
        input=_input(fields, body, context),
        wishes=Wishes(
            kind=body.kind,
            layers=_distinct(body.layers),
            heads=_distinct(body.heads),
            aggregate=body.aggregate,
            norms=body.norms,
            words=body.words,
        ),
        alignment=None
        if alignment is None
        else AlignmentWishes(alignment.method, alignment.layer, alignment.head, alignment.shifted),
        model_name=body.model or None,
        deadline=record.started + settings.request_timeout_seconds,
        check=lambda outline: check_picture(outline, settings.max_picture_pixels) if FORMATS[name].drawn else None,
    )


def _distinct(numbers: list[int] | None) -> tuple[int, ...] | None:
    return None if numbers is None else tuple(dict.fromkeys(numbers))


def _input(
    fields: RequestFields, body: AttentionBody, context: Context
) -> TranslationInput | EncoderInput | DecoderInput:
    """The one input of a request; InputError where there is none, more than one, or a field that goes with another."""
    given = [name for name in _INPUTS if name in fields.values]
    if len(given) != 1:
        choice = ", ".join(f"`{name}` ({meaning})" for name, meaning in _INPUTS.items())
        raise InputError(f"a request has one of {choice}. Given: {', '.join(given) or 'none'}")
    (name,) = given
    for field, owner in _BELONGS_TO.items():
        if field in fields.values and owner != name:
            raise InputError(f"`{field}` goes with `{owner}`, but the request has `{name}`", parameter=field)
    if not fields.values[name]:
        raise EmptyInputError(name)
    if body.q is not None:
        return _translation(fields, body, context)
    if body.inputs is not None:
        return EncoderInput(_texts(body.inputs), body.prompt_name)
    assert body.prompt is not None  # one of the three is given
    return DecoderInput(body.prompt, body.max_new_tokens or 0)


def _translation(fields: RequestFields, body: AttentionBody, context: Context) -> TranslationInput:
    assert body.q is not None
    source, target = check_languages(fields, context.registry)
    if body.target_text == "":
        raise EmptyInputError("target_text")
    if body.target_text is not None:
        for field in ("beam_size", "max_new_tokens"):
            if field in fields.values:
                raise InputError(
                    f"`{field}` is for the model's own translation, but `target_text` is given", parameter=field
                )
    search = SearchOptions(beam_size=body.beam_size, max_new_tokens=body.max_new_tokens or None)
    return TranslationInput(body.q, source, target, body.target_text, search)


def _texts(inputs: str | list[str]) -> tuple[str, ...]:
    texts = (inputs,) if isinstance(inputs, str) else tuple(inputs)
    if not all(texts):
        raise EmptyInputError("inputs")
    return texts
