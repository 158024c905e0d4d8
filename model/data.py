"""Sentence pairs from files: tab-separated, UTF-8, plain or compressed with xz or gz."""

from __future__ import annotations

import gzip
import lzma
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple

MAX_CHARACTERS = 2_000
"""A longer sentence is taken for a broken line."""


class DataError(ValueError):
    """A data file that cannot be used."""


class ScoredPair(NamedTuple):
    """Two sentences, and how alike they are in people's eyes."""

    score: float
    first: str
    second: str


@dataclass
class ScoredFile:
    """The scored pairs of one file, and how many lines were left out, by reason."""

    path: Path
    pairs: list[ScoredPair] = field(default_factory=list)
    malformed: dict[str, int] = field(default_factory=dict)


@dataclass
class PairFile:
    """The pairs of one file, first language first, and how many lines were left out, by reason."""

    path: Path
    pairs: list[tuple[str, str]] = field(default_factory=list)
    malformed: dict[str, int] = field(default_factory=dict)
    links: list[str] = field(default_factory=list)
    """The words of each pair that are translations of each other, "0-0 1-2", where they were read too."""
    direction: str = "both"
    """Which way the pairs are translated in training: "both", "there" or "back"."""


@dataclass
class TextFile:
    """The documents of one file of running text, a line feed between the paragraphs of each."""

    path: Path
    documents: list[str]

    @property
    def paragraphs(self) -> list[str]:
        """The paragraphs of all documents."""
        return [paragraph for document in self.documents for paragraph in document.split("\n")]


def open_text(path: Path) -> IO[str]:
    """Open a UTF-8 file for reading, decompressing by its suffix (.xz, .gz); only a line feed ends a line."""
    # utf-8-sig leaves out the mark that some editors put first, which would stick to the first word.
    if path.suffix == ".xz":
        return lzma.open(path, "rt", encoding="utf-8-sig", newline="\n")
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="\n")
    return path.open(encoding="utf-8-sig", newline="\n")


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a text file; DataError where it is missing or damaged."""
    try:
        with open_text(path) as file:
            for line in file:
                yield line.rstrip("\r\n")
    except FileNotFoundError as error:
        raise DataError(f"there is no data file {path}") from error
    except (OSError, EOFError, lzma.LZMAError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error


def read_pairs(path: Path) -> PairFile:
    """All well-formed pairs of a file; the others are counted by what is wrong with them."""
    result = PairFile(path)
    for line in read_lines(path):
        columns = line.split("\t")
        problem = _problem(columns, 2)
        if problem:
            result.malformed[problem] = result.malformed.get(problem, 0) + 1
        else:
            result.pairs.append((columns[0].strip(), columns[1].strip()))
    if not result.pairs:
        raise DataError(f"{path} has no pair: a line is two sentences with a tab between them")
    return result


def read_documents(path: Path, max_paragraphs: int = 0) -> TextFile:
    """A text file with a paragraph on each line and an empty line between documents; 0 is all of its paragraphs."""
    documents: list[list[str]] = [[]]
    num_paragraphs = 0
    for line in read_lines(path):
        if max_paragraphs and num_paragraphs == max_paragraphs:
            break
        if line.strip():
            documents[-1].append(line.strip())
            num_paragraphs += 1
        elif documents[-1]:
            documents.append([])
    if not num_paragraphs:
        raise DataError(f"{path} has no text")
    return TextFile(path, ["\n".join(paragraphs) for paragraphs in documents if paragraphs])


def read_scored_pairs(path: Path) -> ScoredFile:
    """All well-formed lines of score, sentence, sentence, with tabs between; the others are counted."""
    result = ScoredFile(path)
    for line in read_lines(path):
        columns = line.split("\t")
        problem = _problem(columns, 3) or ("" if _is_number(columns[0]) else "a score that is no number")
        if problem:
            result.malformed[problem] = result.malformed.get(problem, 0) + 1
        else:
            result.pairs.append(ScoredPair(float(columns[0]), columns[1].strip(), columns[2].strip()))
    if not result.pairs:
        raise DataError(f"{path} has no scored pair: a line is a score and two sentences with tabs between them")
    return result


def num_columns(path: Path) -> int:
    """How many columns the first line of a file has."""
    return len(next(read_lines(path), "").split("\t"))


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _problem(columns: list[str], wanted: int) -> str | None:
    if len(columns) != wanted:
        return f"not {'two' if wanted == 2 else 'three'} columns"
    if not all(column.strip() for column in columns):
        return "an empty column"
    if any(len(column) > MAX_CHARACTERS for column in columns):
        return f"more than {MAX_CHARACTERS} characters"
    return None
