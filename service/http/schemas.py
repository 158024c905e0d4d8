"""Shapes that every endpoint shares."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

MAX_SEED = 2**64 - 1

Number = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[Number, Field(gt=0)]
Share = Annotated[Number, Field(gt=0, lt=1)]
Count = Annotated[int, Field(gt=0)]
Seed = Annotated[int, Field(ge=0, le=MAX_SEED)]


class WireModel(BaseModel):
    """Unknown fields are ignored, as the clients of these protocols expect."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class ErrorResponse(WireModel):
    """Every error outside /v1/."""

    error: str = Field(description="What was wrong with which value, and what is allowed.")
    error_type: str = Field(description="The kind of error, for programs.")


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI entries for error statuses."""
    return {status: {"model": ErrorResponse} for status in statuses}


def request_body(model: type[BaseModel], *, examples: dict[str, Any] | None = None) -> dict[str, Any]:
    """The OpenAPI entry of a body that `request_parsing` reads, in all the encodings that it takes.

    The framework cannot find it out by itself, because no parameter of the route declares the body.
    """
    schema = inlined_schema(model)
    json_body: dict[str, Any] = {"schema": schema}
    if examples:
        json_body["examples"] = examples
    return {
        "requestBody": {
            "required": True,
            "content": {
                "application/json": json_body,
                "application/x-www-form-urlencoded": {"schema": schema},
                "multipart/form-data": {"schema": schema},
            },
        }
    }


def event_stream(model: type[BaseModel] | None = None) -> dict[str, Any]:
    """The OpenAPI entry of an answer that is a stream of events; the data of each is a `model`, or any JSON."""
    data: dict[str, Any] = {"type": "string", "contentMediaType": "application/json"}
    if model is not None:
        data["contentSchema"] = inlined_schema(model)
    schema = {"type": "object", "properties": {"data": data}, "required": ["data"]}
    return {"content": {"text/event-stream": {"schema": schema}}}


def inlined_schema(model: type[BaseModel]) -> Any:
    """The schema of `model` without references, for use inside of the whole document."""
    schema = model.model_json_schema()
    return _inlined(schema, schema.pop("$defs", {}))


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    """`schema` with its parts in place: references to them would lead nowhere from inside the whole document."""
    if isinstance(schema, list):
        return [_inlined(part, definitions) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(definitions[schema["$ref"].removeprefix("#/$defs/")], definitions)
    return {name: _inlined(part, definitions) for name, part in schema.items()}
