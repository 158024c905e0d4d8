"""The head that continues texts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from service.heads.generate import chat_routes, completion_routes, responses_routes, tgi_routes, token_routes
from service.heads.generate.generator import TextGenerator
from service.heads.generate.load import load_generation
from service.heads.generate.model import GenerationModel
from service.heads.generate.schemas.tgi import MAX_STOPS, GenerateParameters
from service.heads.head import Fields, Head, ModelInfo, Panel, RootAnswer, TaskModels
from service.http.context import Context
from service.http.error_handlers import OPENAI, TGI
from service.settings import Settings


class GenerationModelInfo(ModelInfo):
    """One loaded model that continues texts."""

    max_total_tokens: int
    max_beam_size: int
    max_top_tokens: int
    has_chat_template: bool


def _info(model: GenerationModel) -> Mapping[str, Any]:
    return {
        "max_total_tokens": model.max_total_tokens,
        "max_beam_size": model.max_beam_size,
        "max_top_tokens": model.max_top_tokens,
        "has_chat_template": model.chat_template is not None,
    }


def _server_info(model: GenerationModel, settings: Settings) -> Mapping[str, Any]:
    return {
        "model_type": {GenerationModel.task: {}},
        "max_client_batch_size": settings.max_batch_texts,
        "auto_truncate": False,
        "model_pipeline_tag": "text-generation",
        "max_input_tokens": model.max_input_length,
        "max_total_tokens": model.max_total_tokens,
        "max_best_of": settings.max_best_of,
        "max_stop_sequences": MAX_STOPS,
    }


_TGIS_OWN = tuple(name for name in GenerateParameters.model_fields if name not in ("truncate", "top_k"))
"""Parameters that Hugging Face's clients send for no other task."""


def _is_for_text(fields: Fields) -> bool:
    parameters = fields.get("parameters")
    return "inputs" in fields and (
        "stream" in fields
        or (isinstance(parameters, dict) and any(parameters.get(name) is not None for name in _TGIS_OWN))
    )


@asynccontextmanager
async def _build(context: Context) -> AsyncIterator[tuple[object, ...]]:
    generator = TextGenerator(context.tokenization)
    for model in context.registry.of_kind(GenerationModel):
        generator.template(model)  # an invalid one stops the start and not a request
    yield (generator,)


GENERATE = Head(
    name="generate",
    routers=(
        (tgi_routes.router, TGI),
        (token_routes.router, TGI),
        (completion_routes.router, OPENAI),
        (chat_routes.router, OPENAI),
        (responses_routes.router, OPENAI),
    ),
    build=_build,
    panel=Panel(name="generate", title="Generate", folder=Path(__file__).parent / "panel", place=4),
    models=TaskModels(
        kind=GenerationModel,
        load=load_generation,
        info_schema=GenerationModelInfo,
        info=_info,
        server_info=_server_info,
        one_loop=True,
        token_lists="flat",
    ),
    root=(
        RootAnswer(
            task=GenerationModel.task,
            kind=GenerationModel,
            answer=tgi_routes.generate_at_root,
            protocol=TGI,
            claims=_is_for_text,
            fits=lambda fields: isinstance(fields.get("inputs"), str),
            prediction=lambda answer: answer[0]["generated_text"],
        ),
        RootAnswer(
            task=None,
            kind=GenerationModel,
            answer=chat_routes.chat_completions,
            protocol=OPENAI,
            claims=lambda fields: "messages" in fields,
            prediction=lambda answer: answer["choices"][0]["message"]["content"],
        ),
        RootAnswer(
            task=None,
            kind=GenerationModel,
            answer=completion_routes.completions,
            protocol=OPENAI,
            claims=lambda fields: "prompt" in fields,
            prediction=lambda answer: answer["choices"][0]["text"],
        ),
    ),
)
