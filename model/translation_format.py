"""How a translation model is told what to translate and into what: the tokens around a source and before a target.

Model families spell this differently, so it is data of the checkpoint and of the bundle, and `bind` is the one place
that applies it. Free of torch, because the service imports it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from model.tokenizer import Tokenizer

SOURCE, TARGET = "{source}", "{target}"
_PLACEHOLDERS = re.compile(f"{re.escape(SOURCE)}|{re.escape(TARGET)}")


@dataclass(frozen=True)
class TranslationFormat:
    """The tokens around the text that an encoder reads, and those that a decoder starts with.

    Each entry is the spelling of one token of the vocabulary. In it `{source}` and `{target}` stand for the languages
    as the model spells them. The source is `source_prefix`, the tokens of `text_prefix` and the text together, and
    `source_suffix`; the target begins with `decoder_start` and `target_prefix`, which the model does not choose.

    | model | source | target |
    |---|---|---|
    | ours, MADLAD-400 | `<2{target}>` text `</s>` | the start token |
    | Marian | text `</s>`, or `>>{target}<<` text `</s>` | `<pad>` |
    | M2M100, NLLB | `{source}` text `</s>` | `</s>` `{target}` |
    | T5 | `translate {source} to {target}: ` and the text, `</s>` | `<pad>` |
    """

    source_prefix: tuple[str, ...] = ()
    source_suffix: tuple[str, ...] = ()
    text_prefix: str = ""
    """A text that is put before every source and read with it, `{source}` and `{target}` in it too."""
    decoder_start: tuple[str, ...] = ()
    target_prefix: tuple[str, ...] = ()
    spellings: Mapping[str, str] = field(default_factory=dict)
    """What the model calls a language, by our code, where that is not the code itself: "deu_Latn", "German"."""

    def bind(self, source: str, target: str, encoder: Tokenizer, decoder: Tokenizer) -> BoundFormat:
        """The ids for one direction; TokenizerError names a token that a tokenizer lacks.

        `encoder` is the tokenizer of sources, `decoder` that of targets; they may be one.
        """

        def ids(tokenizer: Tokenizer, spellings: Sequence[str]) -> tuple[int, ...]:
            return tuple(tokenizer.token_id(self._fill(spelling, source, target)) for spelling in spellings)

        return BoundFormat(
            source_prefix=ids(encoder, self.source_prefix),
            source_suffix=ids(encoder, self.source_suffix),
            text_prefix=self._fill(self.text_prefix, source, target),
            decoder_start=ids(decoder, self.decoder_start),
            target_prefix=ids(decoder, self.target_prefix),
        )

    def _fill(self, template: str, source: str, target: str) -> str:
        """`template` with the languages as the model spells them."""
        codes = {SOURCE: source, TARGET: target}
        return _PLACEHOLDERS.sub(lambda found: self.spellings.get(codes[found[0]], codes[found[0]]), template)


@dataclass(frozen=True)
class BoundFormat:
    """A format for one direction, as token ids."""

    source_prefix: tuple[int, ...]
    source_suffix: tuple[int, ...]
    text_prefix: str
    decoder_start: tuple[int, ...]
    target_prefix: tuple[int, ...]

    def source_ids(self, text_ids: Sequence[int]) -> tuple[int, ...]:
        """What the encoder reads, given the tokens of `text_prefix` and the text."""
        return (*self.source_prefix, *text_ids, *self.source_suffix)

    @property
    def num_source_tokens(self) -> int:
        """How many tokens stand around the text."""
        return len(self.source_prefix) + len(self.source_suffix)

    @property
    def target_ids(self) -> tuple[int, ...]:
        """What the decoder begins with."""
        return (*self.decoder_start, *self.target_prefix)


def format_of(metadata: Mapping[str, Any]) -> TranslationFormat:
    """That of a checkpoint; models that are trained here do not write it down. ValueError for one that is none."""
    given = metadata.get("format")
    if given is None:
        return OWN_FORMAT
    try:
        lists = {key: tuple(value) for key, value in given.items() if key not in ("text_prefix", "spellings")}
        return TranslationFormat(**{**given, **lists})
    except (TypeError, AttributeError) as error:
        raise ValueError(f"the metadata's format is {given!r}, which is no format of a translation: {error}") from error


OWN_FORMAT = TranslationFormat(source_prefix=("<2{target}>",), source_suffix=("</s>",), decoder_start=("<s>",))
"""Of the models that are trained here, after Johnson et al. 2017, https://arxiv.org/abs/1611.04558."""
