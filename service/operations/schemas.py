"""GET /health and /info, /tokenize and /decode, and /v1/models.

`service.http.inputs` checks texts and token ids, which takes long lists and has messages of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, cast

from pydantic import ConfigDict, Field, RootModel, SkipValidation, create_model

from service.heads.head import ModelInfo, TaskModels
from service.heads.registry import COMPANIONS, TASKS
from service.http.schemas import WireModel


class KeyUsage(WireModel):
    """What one API key has used this month, and may use; null is no limit."""

    name: str
    characters: int
    requests: int
    characters_per_month: int | None
    requests_per_minute: int | None


class HealthResponse(WireModel):
    """200 of GET /health; 503 has both fields beside `error` and `error_type`."""

    status: str
    models: dict[str, str] | None = Field(
        None, description='With details, by name: "ok", or "busy" for one with a full queue.'
    )


class LimitsInfo(WireModel):
    """The server's limits, by the names of the settings."""

    model_config = ConfigDict(from_attributes=True)

    max_body_bytes: int
    max_text_characters: int
    max_batch_texts: int
    max_client_batch_size: int
    max_alternatives: int
    max_beam_size: int
    max_file_bytes: int
    max_waiting_requests: int
    max_waiting_tokens: int
    requests_per_minute: int
    request_timeout_seconds: float


def _schema(task: TaskModels) -> type[ModelInfo]:
    """What GET /info has for a model of `task`: its head's fields, and those that other heads add to every model."""
    bases: Any = (task.info_schema, *(companions.info_schema for companions in COMPANIONS))
    return cast(
        "type[ModelInfo]", create_model(task.info_schema.__name__, __doc__=task.info_schema.__doc__, __base__=bases)
    )


MODEL_SCHEMAS = {name: _schema(task) for name, task in TASKS.items()}
if TYPE_CHECKING:
    AnyModelInfo = ModelInfo
else:
    AnyModelInfo = Union[tuple(MODEL_SCHEMAS.values())]  # noqa: UP007  # so that the documentation lists them all


class InfoResponse(WireModel):
    """TEI's and TGI's fields, which describe the first model of the first head that has one, and ours: all the models,
    and the limits. Where a model continues texts, the fields that TGI alone has are its.
    """

    model_id: str
    model_sha: str | None
    model_dtype: str
    model_device_type: str
    model_pipeline_tag: str | None = None
    served_model_name: str
    model_type: dict[str, dict[str, Any]]
    max_concurrent_requests: int
    max_input_length: int
    max_input_tokens: int = Field(description="Longest prompt.")
    max_total_tokens: int | None = Field(None, description="Longest prompt and its continuation together.")
    max_best_of: int | None = None
    max_stop_sequences: int | None = None
    max_batch_tokens: int
    max_batch_requests: int
    max_client_batch_size: int
    auto_truncate: bool
    tokenization_workers: int
    validation_workers: int
    router: Literal["polyhead"] = "polyhead"
    version: str
    sha: str | None = Field(None, description="Of the server's source, where its build says so: never here.")
    docker_label: str | None = None
    models: list[AnyModelInfo]
    limits: LimitsInfo


class TokenizeRequest(WireModel):
    """POST /tokenize."""

    inputs: SkipValidation[str | list[str]] = Field(
        description="A text, or a list of texts.", examples=["What is deep learning?"]
    )
    add_special_tokens: bool = Field(True, description="With the special tokens that the model reads.")
    prompt_name: str | None = Field(None, description="Name of the prompt of the model to put before each text.")
    model: Annotated[str | None, Field(description="Name of the model (ours), of any task.")] = None


class Token(WireModel):
    """One token. `start` and `stop` count characters of the text with its prompt; a special token has none."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class TokenizeResponse(RootModel[list[list[Token]] | list[Token]]):
    """200 of POST /tokenize: the tokens of each input, also for one input (TEI); where the model continues texts, those
    of one text alone (TGI).
    """


class DecodeRequest(WireModel):
    """POST /decode."""

    ids: SkipValidation[list[int] | list[list[int]]] = Field(
        description="Token ids, or a list of lists of them.", examples=[[101, 2054, 102]]
    )
    skip_special_tokens: bool = Field(True, description="Leave special tokens out of the text.")
    model: Annotated[str | None, Field(description="Name of the model (ours), of any task.")] = None


class DecodeResponse(RootModel[list[str]]):
    """200 of POST /decode: the text of each list, also for one list."""


class ModelObject(WireModel):
    """One loaded model."""

    id: str
    object: Literal["model"] = "model"
    created: int = Field(description="When it was loaded, in seconds since 1970.")
    owned_by: Literal["polyhead"] = "polyhead"
    task: str = Field(description="What it is for (ours).")


class ModelList(WireModel):
    """200 of GET /v1/models."""

    object: Literal["list"] = "list"
    data: list[ModelObject]
