"""Runs of text between two tags, and the `Plan` that they make. Tags and all else that is no text stay."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from service.heads.translate.text.fit import fit_lengths
from service.heads.translate.text.plan import Plan, Segment
from service.heads.translate.text.segment import CountTokens, Splitting, cut_text

WHITE_SPACE = " \t\n\f\r"
_WHITE_SPACE_RUN = re.compile(rf"[{WHITE_SPACE}]+|[^{WHITE_SPACE}]+")


@dataclass(frozen=True, slots=True)
class Run:
    """Text without a tag in it, as a reader sees it: references resolved, and where that is wanted white space folded.

    Character i of `text` is written in the document from bounds[i] to bounds[i + 1].
    """

    text: str
    bounds: Sequence[int]


@dataclass(slots=True)
class RunBuilder:
    """Collects the text and the references of one run after the other."""

    texts: list[str] = field(default_factory=list)
    bounds: list[int] = field(default_factory=list)

    def add_text(self, text: str, start: int, *, folded: bool) -> None:
        """Text that stands at `start`; `folded` makes one space of all white space between two words."""
        if not folded:
            self.texts.append(text)
            self.bounds += range(start, start + len(text))
            return
        for match in _WHITE_SPACE_RUN.finditer(text):
            if match[0][0] in WHITE_SPACE:
                self.texts.append(" ")
                self.bounds.append(start + match.start())
            else:
                self.texts.append(match[0])
                self.bounds += range(start + match.start(), start + match.end())

    def add_reference(self, text: str, start: int, end: int) -> None:
        """What a reference from `start` to `end` stands for."""
        self.texts.append(text)
        self.bounds += [start] + [end] * (len(text) - 1)

    def take(self, end: int) -> Iterator[Run]:
        """The run that ends at `end`, if there is any text in it; the next one begins."""
        if self.texts:
            yield Run("".join(self.texts), [*self.bounds, end])
            self.texts, self.bounds = [], []


def plan_of_runs(
    document: str,
    runs: Sequence[Run],
    escape: Callable[[str], str],
    *,
    language: str,
    splitting: Splitting,
    max_tokens: int,
    count_tokens: CountTokens,
) -> Plan:
    """Each run cut into sentences of at most `max_tokens` tokens; all of `document` outside of them is literal."""
    parts = [list(cut_text(run.text, language, splitting)) for run in runs]
    fitted = fit_lengths([part for run in parts for part, is_text in run if is_text], max_tokens, count_tokens)
    pieces: list[str | Segment] = []
    end = 0
    for run, run_parts in zip(runs, parts, strict=True):
        pieces.append(document[end : run.bounds[0]])
        position = 0
        for part, is_text in run_parts:
            for piece, for_model in next(fitted) if is_text else [(part, False)]:
                source = document[run.bounds[position] : run.bounds[position + len(piece)]]
                pieces.append(Segment(piece, source) if for_model else source)
                position += len(piece)
        end = run.bounds[-1]
    pieces.append(document[end:])
    return Plan(pieces, escape)
