"""The translation of one text: split, encoded, checked and joined. Plain functions, no waiting.

The work has two rounds. The first translates every segment. The second repeats, in smaller pieces, the segments whose
translations lost a number, a URL or a placeholder in every hypothesis; `service.heads.translate.text.plan` knows which.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace

from service.engine.decode.sampling.options import SamplingOptions
from service.engine.decode.types import DecodingOptions, DecodingRequest, Result
from service.errors import InvalidRequestError
from service.heads.translate.model import TranslationModel
from service.heads.translate.text.markup import Markup, split_document
from service.heads.translate.text.plan import Plan
from service.settings import Settings

_FEWEST_NEW_TOKENS = 32
_NEW_TOKENS_PER_SOURCE_TOKEN = 3


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """The decoding options of a request; None is the default of the model."""

    beam_size: int | None = None
    length_penalty: float | None = None
    max_new_tokens: int | None = None
    num_alternatives: int = 0
    sampling: SamplingOptions = field(default_factory=SamplingOptions)
    """Where it samples, there are neither beams nor alternatives. Each sentence is drawn with the seed, by itself."""


class TextJob:
    """One text for one model: `requests` of the first round, then `retries`, then the `texts` that came out.

    The translation of its first segment begins with `target_prefix`. Raises InvalidRequestError for a prefix that is
    too long, or where there is no segment.
    """

    def __init__(
        self,
        text: str,
        *,
        source: str,
        target: str,
        markup: Markup,
        model: TranslationModel,
        search: SearchOptions,
        deadline: float | None,
        settings: Settings,
        target_prefix: str = "",
    ) -> None:
        self.model = model
        self._format = model.bound_format(source, target)
        self._search = search
        self._deadline = deadline
        self._settings = settings
        around = self._format.num_source_tokens + len(model.tokenizer.encode(self._format.text_prefix))
        self.plan = split_document(text, markup, source, model.max_source_tokens - around, self._count_tokens)
        self._drafts: list[Plan] = []
        self.prefix_ids = self._encode_prefix(target_prefix) if target_prefix else ()

    def _encode_prefix(self, prefix: str) -> tuple[int, ...]:
        if not self.plan.segments:
            raise InvalidRequestError(
                "Invalid request: target_prefix parameter: the text has nothing to translate", parameter="target_prefix"
            )
        ids = tuple(self.model.target_tokenizer.encode(prefix))
        limit = min(self._settings.max_new_tokens, self.model.max_new_tokens) - 1
        if len(ids) > limit:
            raise InvalidRequestError(
                f"Invalid request: target_prefix parameter has {len(ids)} tokens, allowed: at most {limit}",
                parameter="target_prefix",
            )
        return ids

    def sentences(self) -> list[TextJob]:
        """A job for each request of the first round, whose texts, joined, are the text; one where there is none."""
        jobs = []
        for number, part in enumerate(self.plan.parts()):
            job = copy(self)
            job.plan = part
            if number:
                job.prefix_ids = ()
            jobs.append(job)
        return jobs

    def requests(self) -> list[DecodingRequest]:
        """The first round, one request a segment. Raises InvalidRequestError for an option that is out of bounds."""
        return self._encode(self.plan.segments, self._search, self.prefix_ids)

    def retries(self, results: Sequence[Result]) -> list[DecodingRequest]:
        """The second round, usually empty, given the first one's results."""
        ranked = [self._rank(index, result) for index, result in enumerate(results)]
        # Where no hypothesis is complete, all ranks hold the same one: so every draft has the same segments left.
        self._drafts = [
            # A segment that is cut loses its place for the prefix.
            self.plan.retry([texts[min(rank, len(texts) - 1)] for texts in ranked], keeps_first=bool(self.prefix_ids))
            for rank in range(self._search.num_alternatives + 1)
        ]
        return self._encode(self._drafts[0].segments, replace(self._search, num_alternatives=0))

    def texts(self, results: Sequence[Result]) -> list[str]:
        """The translation and its alternatives, all different, given the second round's results."""
        pieces = [self.model.target_tokenizer.decode(result.best.token_ids) for result in results]
        return list(dict.fromkeys(draft.join(pieces) for draft in self._drafts))

    def _rank(self, index: int, result: Result) -> list[str]:
        """The hypotheses without losses, best first; only the best one where all lost something."""
        before = self.prefix_ids if index == 0 else ()
        decode = self.model.target_tokenizer.decode
        texts = [decode((*before, *hypothesis.token_ids)) for hypothesis in result.hypotheses]
        return [text for text in texts if not self.plan.missing(index, text)] or texts[:1]

    def _count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(ids) for ids in self.model.tokenizer.encode_batch(texts)]

    def _encode(
        self, segments: Sequence[str], search: SearchOptions, first_prefix: tuple[int, ...] = ()
    ) -> list[DecodingRequest]:
        text_prefix = self._format.text_prefix
        sources = self.model.tokenizer.encode_batch([text_prefix + segment for segment in segments])
        prefixes = [first_prefix, *[()] * (len(sources) - 1)]
        return [
            DecodingRequest(
                source_ids=self._format.source_ids(ids),
                prompt_ids=(*self.model.prompt_ids(self._format), *prefix),
                options=decoding_options(search, self.model, len(ids), self._settings, len(prefix)),
                sampling=search.sampling,
                deadline=self._deadline,
            )
            for ids, prefix in zip(sources, prefixes, strict=False)
        ]


def decoding_options(
    search: SearchOptions,
    model: TranslationModel,
    num_source_tokens: int,
    settings: Settings,
    num_prefix_tokens: int = 0,
) -> DecodingOptions:
    """What the request asks for, the model's defaults for the rest; InvalidRequestError for what is out of bounds.

    Unless it is asked for, a translation may have three times as many tokens as its source and some more: a model
    that falls into a loop stops there, and no true translation is longer. A forced prefix takes its share of the
    longest translation that is possible.
    """
    max_beam_size = min(settings.max_beam_size, model.max_beam_size)
    max_new_tokens = min(settings.max_new_tokens, model.max_new_tokens)
    _check_limit("beam_size", search.beam_size, max_beam_size)
    _check_limit("max_new_tokens", search.max_new_tokens, max_new_tokens)
    num_hypotheses = min(search.num_alternatives + 1, max_beam_size)
    default_beam_size = 1 if search.sampling.do_sample else min(model.default_beam_size, max_beam_size)
    beam_size = search.beam_size or default_beam_size
    likely = max(_FEWEST_NEW_TOKENS, _NEW_TOKENS_PER_SOURCE_TOKEN * num_source_tokens)
    return replace(
        model.decoding,
        beam_size=max(beam_size, num_hypotheses),
        length_penalty=model.default_length_penalty if search.length_penalty is None else search.length_penalty,
        num_hypotheses=num_hypotheses,
        max_new_tokens=min(search.max_new_tokens or likely, max_new_tokens - num_prefix_tokens),
    )


def _check_limit(name: str, value: int | None, limit: int) -> None:
    if value is not None and value > limit:
        raise InvalidRequestError(
            f"Invalid request: {name} parameter must be <= {limit}. Given: {value}", parameter=name
        )
