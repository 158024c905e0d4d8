"""The options of POST /translate that exclude each other or depend on the texts, checked."""

from __future__ import annotations

from collections.abc import Sequence

from service.engine.decode.sampling.options import SamplingOptions
from service.errors import InvalidRequestError, shown
from service.heads.translate.job import SearchOptions
from service.heads.translate.schemas import TranslateRequest
from service.heads.translate.text.markup import TextFormat


def search_options(options: TranslateRequest, max_alternatives: int) -> SearchOptions:
    """How tokens are chosen. InvalidRequestError for too many alternatives, or for beams beside sampling."""
    if options.alternatives > max_alternatives:
        raise InvalidRequestError(
            f"Invalid request: alternatives parameter must be <= {max_alternatives}", parameter="alternatives"
        )
    return SearchOptions(
        beam_size=options.beam_size,
        length_penalty=options.length_penalty,
        max_new_tokens=options.max_new_tokens,
        num_alternatives=options.alternatives,
        sampling=_sampling(options),
    )


def _sampling(options: TranslateRequest) -> SamplingOptions:
    """Greedy, unless one of temperature, top_k and top_p is given."""
    given = [name for name in ("temperature", "top_k", "top_p") if getattr(options, name) is not None]
    if not given:
        return SamplingOptions()
    if (options.beam_size or 1) > 1:
        raise not_together("beam_size", f"sampling ({given[0]})", options.beam_size)
    if options.alternatives:
        raise not_together("alternatives", f"sampling ({given[0]})", options.alternatives)
    return SamplingOptions(
        do_sample=True,
        temperature=1.0 if options.temperature is None else options.temperature,
        top_k=options.top_k or 0,
        top_p=1.0 if options.top_p is None else options.top_p,
        seed=options.seed,
    )


def target_prefixes(
    options: TranslateRequest, texts: Sequence[str], text_format: TextFormat, *, is_list: bool
) -> list[str]:
    """A prefix for each text, "" for none; an empty list where no text has one.

    White space at the ends is not the model's: it would read the space after a word as a word of its own.
    """
    given = options.target_prefix
    if given is None:
        return []
    prefixes = [prefix.strip() for prefix in (given if isinstance(given, list) else [given])]
    if not any(prefixes):
        return []
    if text_format == "html":
        raise not_together("target_prefix", "the format html", given)
    if isinstance(given, list) != is_list:
        raise InvalidRequestError(
            "Invalid request: target_prefix parameter must be a string for a text, and a list of strings for a list. "
            f"Given: {shown(given)}",
            parameter="target_prefix",
        )
    if len(prefixes) != len(texts):
        raise InvalidRequestError(
            f"Invalid request: target_prefix parameter has {len(prefixes)} values, but q has {len(texts)}",
            parameter="target_prefix",
        )
    return prefixes


def check_stream(options: TranslateRequest, *, is_list: bool) -> None:
    """InvalidRequestError for what cannot be streamed."""
    if is_list:
        raise not_together("stream", "a list of texts", True)
    if options.alternatives:
        raise not_together("alternatives", "stream", options.alternatives)


def not_together(name: str, other: str, value: object) -> InvalidRequestError:
    """The error for a parameter that excludes another."""
    return InvalidRequestError(
        f"Invalid request: {name} parameter does not go with {other}. Given: {shown(value)}", parameter=name
    )
