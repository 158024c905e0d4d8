"""POST /attention, a protocol of our own."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from service.heads.attend.aggregation import Aggregate
from service.heads.attend.formats import FormatName
from service.heads.attend.selection import KindChoice
from service.heads.attend.word_alignment import Method
from service.http.schemas import WireModel


def _numbers(value: Any) -> Any:
    """A number, or in a form or a query string numbers with commas between them; "all" leaves the choice open."""
    if value == "all":
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return [value]
    return value.split(",") if isinstance(value, str) else value


def _alignment(value: Any) -> Any:
    """The variant for `true`, `false` and the name of a variant."""
    if value in (False, "false", ""):
        return None
    if value in (True, "true"):
        return {}
    if value == "shifted":
        return {"shifted": True}
    return {"method": value} if isinstance(value, str) else value


_MAX_CHOICES = 1024

Numbers = Annotated[
    Annotated[list[int], Field(min_length=1, max_length=_MAX_CHOICES, fail_fast=True)] | None,
    BeforeValidator(_numbers),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": _MAX_CHOICES},
                {"type": "integer"},
                {"type": "string", "pattern": "^(all|[0-9]+(,[0-9]+)*)$"},
                {"type": "null"},
            ]
        }
    ),
]


class AlignmentRequest(WireModel):
    """How words are aligned; what is left out is the model's own choice."""

    method: Method = Field(
        "argmax",
        description="argmax takes one direction; the others combine it with the opposite translation.",
    )
    layer: int | None = Field(None, description="Decoder layer.")
    head: int | Literal["mean", "max"] | None = Field(None, description='Head, or "mean" or "max" over all.')
    shifted: bool | None = Field(
        None, description="Align a token by the row that reads it, not by the one that chose it (Chen et al. 2020)."
    )


class AttentionBody(WireModel):
    """POST /attention: a text to translate (`q`), texts for an encoder (`inputs`), or a prompt for a decoder."""

    q: str | None = Field(None, description="A sentence to translate.", examples=["The house is old."])
    source: str | None = Field(None, description='Language of `q`, or "auto".', examples=["en"])
    target: str | None = Field(None, description="Language wanted.", examples=["de"])
    target_text: str | None = Field(
        None, description="The translation to look at; else the model's own.", examples=["Das Haus ist alt."]
    )
    beam_size: int | None = Field(None, ge=1, description="Width of the beam search for the model's own translation.")
    inputs: str | Annotated[list[str], Field(max_length=2)] | None = Field(
        None, description="A text for an encoder, or a pair of texts that it reads together."
    )
    prompt_name: str | None = Field(None, description="Name of the encoder's prompt to put before the text.")
    prompt: str | None = Field(None, description="A text for a decoder.")
    max_new_tokens: int | None = Field(
        None, ge=0, description="Longest translation, or how far a decoder goes on from `prompt`: 0 if not given."
    )
    model: str | None = Field(None, description="Name of the model; else the first that fits.")
    kind: KindChoice | None = Field(
        None, description="Which attention; else cross, or what the model has where it has no cross-attention."
    )
    layers: Numbers = Field(None, description='Layers, from 0, as a list or "0,1"; else all.')
    heads: Numbers = Field(None, description='Heads, from 0, as a list or "0,1"; else all.')
    aggregate: Aggregate = Field(
        "none", description="none, the mean or the max over heads, or rollout (Abnar and Zuidema 2020)."
    )
    norms: bool = Field(False, description="Add the norms of the weighted value vectors (Kobayashi et al. 2020).")
    words: bool = Field(False, description="Maps of words: the sum over the pieces of a key, the mean over a query's.")
    alignment: Annotated[AlignmentRequest | None, BeforeValidator(_alignment)] = Field(
        None,
        description="Word alignment of `q` and its translation: true, or argmax, shifted, intersection, union, "
        "grow-diag-final-and, or an object.",
    )
    format: FormatName | None = Field(None, description="Format of the answer; else what Accept asks for, else json.")
    api_key: str | None = Field(None, description="API key, where the server asks for one.")


class AxisToken(WireModel):
    """A token along an axis, or a word."""

    id: int | None = Field(description="null for a word of several tokens.")
    text: str
    start: int | None = Field(description="Where it begins in its text, in characters; null for a special token.")
    end: int | None
    special: bool
    text_index: int | None = Field(description="Which of `texts` it is from.")


class PredictedToken(WireModel):
    """What a row chose, or was made to choose."""

    id: int
    text: str


class TargetToken(AxisToken):
    """A token that the decoder reads, and the one that follows."""

    predicts: PredictedToken | None = Field(None, description="null where it is not known; absent for words.")


class SourceAxis(WireModel):
    """What the encoder reads."""

    texts: list[str]
    tokens: list[AxisToken]


class TargetAxis(WireModel):
    """What the decoder reads."""

    texts: list[str]
    tokens: list[TargetToken]


class Base64Weights(WireModel):
    """Numbers in the formats base64-float32 and base64-float16."""

    dtype: Literal["float32", "float16"]
    shape: list[int]
    data: str = Field(description="Little-endian numbers in the order of the shape.")


class KindOfMaps(WireModel):
    """The maps of one kind."""

    layers: list[int]
    heads: list[int] | None = Field(description="null where they are aggregated.")
    shape: list[int] = Field(description="Layers, heads, queries, keys.")
    weights: list[list[list[list[float]]]] | Base64Weights


class AlignedWord(WireModel):
    """A word that links count."""

    text: str
    start: int | None
    end: int | None


class AlignmentResponse(WireModel):
    """Links between words, and how they were found."""

    links: str = Field(description='"i-j" for each link of a source and a target word, which is the Pharaoh format.')
    source_words: list[AlignedWord]
    target_words: list[AlignedWord]
    method: Method
    layer: int
    head: int | Literal["mean", "max"]
    shifted: bool


class AttentionResponse(WireModel):
    """200 of POST /attention as JSON."""

    model: str
    task: str
    text: str | None = Field(description="The translation, or the continuation.")
    source: SourceAxis | None = None
    target: TargetAxis | None = None
    aggregate: Aggregate
    words: bool
    alignment: AlignmentResponse | None = None
    maps: dict[str, KindOfMaps]
    norms: dict[str, KindOfMaps] | None = None


ATTENTION_EXAMPLES: dict[str, dict[str, object]] = {
    "translation": {
        "value": {"q": "The house is old.", "source": "en", "target": "de", "kind": "cross", "alignment": True}
    },
    "pair": {"value": {"inputs": ["A dog runs.", "An animal moves."], "layers": [0], "aggregate": "mean"}},
    "prompt": {"value": {"prompt": "Once upon a time", "max_new_tokens": 8, "heads": [0, 1]}},
}
