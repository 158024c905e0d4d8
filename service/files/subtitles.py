"""SubRip subtitles (.srt)."""

from __future__ import annotations

import re
from collections.abc import Sequence

import srt

from service.files.encoding import decode
from service.files.errors import InvalidDocumentError

_DIALOGUE = re.compile(r"^\s*(?:<[^>]{1,20}>)?\s*[-–—]", re.MULTILINE)


class SubtitleDocument:
    """The text of every subtitle; numbers, times and tags are kept.

    A sentence that goes over two lines of a subtitle is translated as one and broken again into as many lines.
    """

    def __init__(self, data: bytes) -> None:
        self._source = decode(data)
        text = self._source.text
        self._line_end = "\r\n" if "\r\n" in text else "\n"
        try:
            self._subtitles = list(srt.parse(text.replace("\r\n", "\n")))
        except (srt.SRTParseError, ValueError, OverflowError) as error:
            raise InvalidDocumentError(f"the file is not a SubRip subtitle file: {error}") from error
        if text.strip() and not self._subtitles:
            raise InvalidDocumentError("the file is not a SubRip subtitle file: it has no subtitle")
        self.texts = [_joined(subtitle.content) for subtitle in self._subtitles]

    def render(self, translations: Sequence[str]) -> bytes:
        subtitles = []
        for subtitle, text, translation in zip(self._subtitles, self.texts, translations, strict=True):
            content = subtitle.content if translation == text else _wrapped(translation, subtitle.content)
            subtitles.append(srt.Subtitle(subtitle.index, subtitle.start, subtitle.end, content, subtitle.proprietary))
        return self._source.encode(srt.compose(subtitles, reindex=False, strict=False, eol=self._line_end))


def _joined(content: str) -> str:
    """The lines as one text, unless several speakers have a line each."""
    if len(_DIALOGUE.findall(content)) > 1:
        return content
    return re.sub(r"[ \t]*\n[ \t]*", " ", content.strip("\n"))


def _wrapped(text: str, content: str) -> str:
    """`text` in about as many lines as `content`, of about equal length."""
    num_lines = content.strip("\n").count("\n") + 1
    if "\n" in text or num_lines == 1:
        return text
    lines = [""]
    remaining = len(text)
    for word in text.split(" "):
        wanted = (remaining + len(lines[-1])) / max(1, num_lines - len(lines) + 1)
        if lines[-1] and len(lines) < num_lines and len(lines[-1]) + len(word) / 2 >= wanted:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
        remaining -= len(word) + 1
    return "\n".join(lines)
