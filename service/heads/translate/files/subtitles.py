"""SubRip subtitles (.srt)."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass

from service.heads.translate.files.encoding import decode
from service.heads.translate.files.errors import InvalidDocumentError

_DELIMITER = "[,.:，．。：]"
_TIME = rf"\d+{_DELIMITER}\d+{_DELIMITER}\d+(?:{_DELIMITER}\d*)?"
# Players and editors take a dot for the comma, a space inside of the arrow, and coordinates after the second time.
_TIMING = re.compile(rf"{_TIME} *-[ -] *> *{_TIME}(?: .*)?")
_NUMBER = re.compile(r"-?\d+(?:\.\d*)?")
_LONGEST_TAG = 22
_DASHES = ("-", "–", "—")


@dataclass(frozen=True, slots=True)
class _Subtitle:
    """The lines of one subtitle's text: `lines[start:stop]` of the file, neither of them blank at its ends."""

    start: int
    stop: int


class SubtitleDocument:
    """The text of every subtitle; numbers, times, tags and everything else keep every byte.

    A sentence that goes over two lines of a subtitle is translated as one and broken again into as many lines. Read
    line by line, in time that is linear in the length: `srt.parse`, and expressions that look for white space twice in
    a row, take the square of it.
    """

    def __init__(self, data: bytes) -> None:
        self._source = decode(data)
        self._lines = list(io.StringIO(self._source.text, newline=""))
        stripped = [line.strip() for line in self._lines]
        self._subtitles = _find_subtitles(stripped)
        self._contents = [self._content(subtitle) for subtitle in self._subtitles]
        self.texts = [_joined(content) for content in self._contents]

    def render(self, translations: Sequence[str]) -> bytes:
        pieces: list[str] = []
        end = 0
        for subtitle, content, text, translation in zip(
            self._subtitles, self._contents, self.texts, translations, strict=True
        ):
            pieces += self._lines[end : subtitle.start]
            end = subtitle.stop
            if translation == text:
                pieces += self._lines[subtitle.start : subtitle.stop]
            else:
                pieces += self._spelled(_wrapped(translation, content), subtitle)
        return self._source.encode("".join([*pieces, *self._lines[end:]]))

    def _content(self, subtitle: _Subtitle) -> list[str]:
        return [_split_end(line)[0] for line in self._lines[subtitle.start : subtitle.stop]]

    def _spelled(self, lines: list[str], subtitle: _Subtitle) -> list[str]:
        """`lines` with the line ends of the subtitle; the last one keeps its own, or none at the end of the file."""
        own = [_split_end(line)[1] for line in self._lines[subtitle.start - 1 : subtitle.stop]]
        # A blank line would end the subtitle.
        shown = [line for line in lines if line.strip()] or [""]
        return [line + own[0] for line in shown[:-1]] + [shown[-1] + own[-1]]


def _find_subtitles(lines: list[str]) -> list[_Subtitle]:
    """The subtitles that have a text. A text ends before the number and the time of the next one: it may hold blank
    lines. InvalidDocumentError for anything else, a subtitle's own number and time apart.
    """
    timings = [index for index, line in enumerate(lines) if "-" in line and _TIMING.fullmatch(line)]
    if not timings and any(lines):
        raise InvalidDocumentError("the file is not a SubRip subtitle file: it has no subtitle")
    # A subtitle begins with its number, which some files leave out.
    begins = [index - 1 if index and _NUMBER.fullmatch(lines[index - 1]) else index for index in timings]
    if begins and any(lines[: begins[0]]):
        wrong = next(index for index, line in enumerate(lines) if line)
        raise InvalidDocumentError(
            f"the file is not a SubRip subtitle file: line {wrong + 1} is neither a number nor a time"
        )
    subtitles = []
    for timing, stop in zip(timings, [*begins[1:], len(lines)], strict=False):
        first, last = timing + 1, stop
        while first < last and not lines[first]:
            first += 1
        while last > first and not lines[last - 1]:
            last -= 1
        if first < last:
            subtitles.append(_Subtitle(first, last))
    return subtitles


def _split_end(line: str) -> tuple[str, str]:
    """A line and its line end."""
    text = line.rstrip("\r\n")
    return text, line[len(text) :]


def _joined(lines: list[str]) -> str:
    """The lines as one text, unless several speakers have a line each."""
    if sum(map(_is_dialogue, lines)) > 1:
        return "\n".join(lines)
    return " ".join(line.strip(" \t") for line in lines)


def _is_dialogue(line: str) -> bool:
    """Whether a speaker's line begins here: a dash, perhaps inside of a tag."""
    text = line.lstrip()
    if text.startswith("<"):
        text = text[text.find(">", 0, _LONGEST_TAG) + 1 :].lstrip()
    return text.startswith(_DASHES)


def _wrapped(text: str, content: list[str]) -> list[str]:
    """`text` in about as many lines as `content`, of about equal length."""
    num_lines = len(content)
    if "\n" in text or num_lines == 1:
        return text.split("\n")
    lines: list[list[str]] = [[]]
    length = -1
    remaining = len(text)
    for word in text.split(" "):
        wanted = (remaining + max(0, length)) / max(1, num_lines - len(lines) + 1)
        if lines[-1] and len(lines) < num_lines and length + len(word) / 2 >= wanted:
            lines.append([])
            length = -1
        lines[-1].append(word)
        length += len(word) + 1
        remaining -= len(word) + 1
    return [" ".join(words) for words in lines]
