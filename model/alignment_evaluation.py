"""Which layer and head of a translation model aligns words best: the alignment error rate of each (Och and Ney 2003).

The model reads both sentences as they stand (forced decoding); nothing is translated. A direction aligns with its
own cross-attention, and where the model translates both ways their links are combined too.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from model.alignment import (
    SYMMETRIZATIONS,
    AlignmentScore,
    Link,
    Links,
    alignment_error_rate,
    argmax_links,
    diagonal_links,
    flipped,
    merge_pieces,
    target_rows,
)
from model.attention_maps import decoder_maps
from model.checkpoint import Checkpoint, CheckpointError
from model.data import DataError, read_lines
from model.tokenizer import Tokenizer
from model.translation_format import format_of

Direction = tuple[str, str]
Maps = Mapping[int, NDArray[np.float32]]
"""The cross-attention (H,T+1,S) of each layer: a row for each of <s> y1 ... yT, a column for each source token."""

_CLOSING = frozenset(".,;:!?)")
_LINK = re.compile(r"(\d+)([-?p])(\d+)")


class AlignedPair(NamedTuple):
    """The words of a sentence in two languages, and the links (first, second) that people drew: sure, or possible."""

    first: list[str]
    second: list[str]
    sure: Links
    possible: Links


@dataclass(frozen=True)
class AlignmentFile:
    """The pairs of one file, and how many links were left out because they lead beyond their sentences."""

    path: Path
    pairs: list[AlignedPair]
    num_left_out: int


class Setting(NamedTuple):
    """How links are read off the maps. `head` None is the mean over all heads of the layer."""

    layer: int
    head: int | None
    shifted: bool


@dataclass(frozen=True)
class AlignmentRecord:
    """The score of one way to align: of a setting or, where that is None, of the diagonal."""

    setting: Setting | None
    method: str
    """A direction, such as "en-de", or the name of a symmetrization of both."""
    score: AlignmentScore


@dataclass(frozen=True)
class _Sentence:
    """One pair in one direction: its maps, and which tokens make which word; targets count from y1."""

    maps: Maps
    source_groups: list[list[int]]
    target_groups: list[list[int]]

    def links(self, setting: Setting) -> Links:
        heads = self.maps[setting.layer]
        attention = heads.mean(0) if setting.head is None else heads[setting.head]
        rows = target_rows(attention, setting.shifted)
        return argmax_links(merge_pieces(rows, self.target_groups, self.source_groups))


def read_alignments(path: Path) -> AlignmentFile:
    """A file whose lines are sentence, sentence and links, with tabs between and words at spaces.

    Links count from zero: "i-j" is sure, "i?j" and "ipj" are possible. DataError names the first line that is not so: a
    score over part of a file would not be one of the file.
    """
    pairs = []
    num_left_out = 0
    for number, line in enumerate(read_lines(path), 1):
        columns = line.split("\t")
        if len(columns) != 3:
            raise DataError(f"{path}, line {number}: {len(columns)} columns, it must be sentence, sentence, links")
        first, second = columns[0].split(), columns[1].split()
        drawn: dict[str, set[Link]] = {"sure": set(), "possible": set()}
        for part in columns[2].split():
            match = _LINK.fullmatch(part)
            if match is None:
                raise DataError(f"{path}, line {number}: {part!r} is not a link, which looks like 0-2, 0?2 or 0p2")
            i, j = int(match[1]), int(match[3])
            if i >= len(first) or j >= len(second):
                num_left_out += 1
            else:
                drawn["sure" if match[2] == "-" else "possible"].add((i, j))
        pairs.append(AlignedPair(first, second, frozenset(drawn["sure"]), frozenset(drawn["possible"])))
    if not any(pair.sure for pair in pairs):
        raise DataError(f"{path} has no sure link")
    return AlignmentFile(path, pairs, num_left_out)


def word_groups(tokenizer: Tokenizer, words: Sequence[str]) -> tuple[list[int], list[list[int]]]:
    """The ids of `words` as running text, and for each word the places of its tokens.

    Words stand between spaces, as models read them in training; what closes a phrase (",", ".") follows without one.
    """
    text = ""
    ends = []
    for word in words:
        text += word if not text or word in _CLOSING else f" {word}"
        ends.append(len(text))
    (encoding,) = tokenizer.encodings([text], add_special_tokens=False)
    groups: list[list[int]] = [[] for _ in words]
    for place, (_, end) in enumerate(encoding.offsets):
        # By its last character, since a token can begin with the space before its word.
        groups[bisect_left(ends, end)].append(place)
    return encoding.ids, groups


@torch.inference_mode()
def cross_maps(checkpoint: Checkpoint, source: Sequence[int], target: Sequence[int]) -> Maps:
    """The cross-attention of each layer as the decoder reads <s> and `target`; `source` has its special tokens."""
    model = checkpoint.model
    device = model.embedding.token.weight.device
    lengths = torch.tensor([len(source)], device=device)
    memory = model.encode(torch.tensor([list(source)], device=device), lengths)
    target_ids = torch.tensor([[checkpoint.config.bos_id, *target]], device=device)
    _, cross = decoder_maps(model, target_ids, memory, lengths)
    return {layer: found.weights[0].float().cpu().numpy() for layer, found in enumerate(cross)}


def evaluate_alignment(
    checkpoint: Checkpoint, pairs: Sequence[AlignedPair], languages: Direction, progress: Callable[[str], None]
) -> list[AlignmentRecord]:
    """The diagonal, then every setting of every direction, then the two directions together where there are two.

    `languages` are those of the file's columns. Links are always (first, second) of these, as the file has them.
    CheckpointError where the model does not translate between them.
    """
    if checkpoint.metadata.get("task") != "translate":
        raise CheckpointError(f"the checkpoint's task is {checkpoint.metadata.get('task')!r}, AER needs 'translate'")
    known = [tuple(direction) for direction in checkpoint.metadata["directions"]]
    directions = [direction for direction in (languages, languages[::-1]) if direction in known]
    if not directions:
        raise CheckpointError(
            f"the checkpoint does not translate between {' and '.join(languages)}, but "
            f"{', '.join('-'.join(direction) for direction in known)}"
        )

    def score(links: Sequence[Links]) -> AlignmentScore:
        return alignment_error_rate(links, [pair.sure for pair in pairs], [pair.possible for pair in pairs])

    diagonal = [diagonal_links(len(pair.first), len(pair.second)) for pair in pairs]
    records = [AlignmentRecord(None, "diagonal", score(diagonal))]
    settings = [
        Setting(layer, head, shifted)
        for layer in range(checkpoint.config.num_decoder_layers)
        for head in (*range(checkpoint.config.num_heads), None)
        for shifted in (False, True)
    ]
    found: dict[Setting, list[list[Links]]] = {setting: [] for setting in settings}
    for direction in directions:
        progress(f"aligning {len(pairs)} sentences, {'-'.join(direction)}")
        by_setting = _align(checkpoint, pairs, direction, is_flipped=direction != languages, settings=settings)
        for setting in settings:
            records.append(AlignmentRecord(setting, "-".join(direction), score(by_setting[setting])))
            found[setting].append(by_setting[setting])
    if len(directions) == 2:
        records += [
            AlignmentRecord(setting, name, score(list(map(combine, *both))))
            for setting, both in found.items()
            for name, combine in SYMMETRIZATIONS.items()
        ]
    return records


def _align(
    checkpoint: Checkpoint,
    pairs: Sequence[AlignedPair],
    direction: Direction,
    *,
    is_flipped: bool,
    settings: Sequence[Setting],
) -> dict[Setting, list[Links]]:
    """The links of each setting for each pair, as (first, second), whichever of them was translated."""
    found: dict[Setting, list[Links]] = {setting: [] for setting in settings}
    for number, pair in enumerate(pairs, 1):
        source, target = (pair.second, pair.first) if is_flipped else (pair.first, pair.second)
        sentence = _read(checkpoint, source, target, direction, number)
        for setting in settings:
            links = sentence.links(setting)
            found[setting].append(flipped(links) if is_flipped else links)
    return found


def _read(
    checkpoint: Checkpoint, source: Sequence[str], target: Sequence[str], direction: Direction, number: int
) -> _Sentence:
    encoder, decoder = checkpoint.tokenizer, checkpoint.target_tokenizer or checkpoint.tokenizer
    source_text, source_groups = word_groups(encoder, source)
    target_text, target_groups = word_groups(decoder, target)
    bound = format_of(checkpoint.metadata).bind(*direction, encoder, decoder)
    ids = bound.source_ids(source_text)
    limit = checkpoint.config.max_seq_len
    if (longest := max(len(ids), len(target_text) + 1)) > limit:
        raise DataError(f"pair {number} has {longest} tokens on one side, the model reads at most {limit}")
    # Special tokens are in no word, so they cannot be aligned.
    before = len(bound.source_prefix)
    shifted_groups = [[place + before for place in group] for group in source_groups]
    return _Sentence(cross_maps(checkpoint, ids, target_text), shifted_groups, target_groups)


def best_setting(records: Sequence[AlignmentRecord], methods: Sequence[str]) -> tuple[Setting, float]:
    """The setting with the lowest mean error rate over the directions `methods`, and that rate."""
    rates: dict[Setting, list[float]] = {}
    for record in records:
        if record.setting is not None and record.method in methods:
            rates.setdefault(record.setting, []).append(record.score.error_rate)
    setting = min(rates, key=lambda setting: sum(rates[setting]))
    return setting, sum(rates[setting]) / len(rates[setting])
