"""Hard word alignment out of attention maps, and how good it is. Plain numpy, because the server aligns too.

A link (i, j) says that source word i and target word j belong together; both count from zero, and a set of links is
written "0-0 1-2", which is the Pharaoh format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Link = tuple[int, int]
Links = frozenset[Link]
Map = NDArray[np.floating]

_NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def target_rows(attention: Map, shifted: bool) -> Map:
    """The rows (T,S) that align the tokens y1 to yT, out of the map (T+1,S) of a decoder that reads <s> y1 ... yT.

    Row i reads the i-th of these and chooses the next token. So a token has two rows: the one that chose it, and, when
    `shifted`, the one that reads it, which knows the token and mostly aligns better (Chen et al. 2020,
    https://arxiv.org/abs/2004.14837).
    """
    return attention[1:] if shifted else attention[:-1]


def merge_pieces(
    attention: Map, query_groups: Sequence[Sequence[int]], key_groups: Sequence[Sequence[int]]
) -> NDArray[np.float32]:
    """A map (...,Q,K) of tokens as one of words: the mean over a query word's tokens, the sum over a key word's.

    Section 4.1 of Clark et al. 2019, https://arxiv.org/abs/1906.04341. A group lists the tokens of a word; where the
    groups hold every key, rows that sum to one still do. A word without tokens gets zeros.
    """
    queries = _membership(query_groups, attention.shape[-2])
    keys = _membership(key_groups, attention.shape[-1])
    means = queries / np.maximum(queries.sum(-1, keepdims=True), 1)
    merged: NDArray[np.float32] = (means @ attention @ keys.T).astype(np.float32)
    return merged


def _membership(groups: Sequence[Sequence[int]], num_tokens: int) -> NDArray[np.float32]:
    matrix = np.zeros((len(groups), num_tokens), np.float32)
    for number, group in enumerate(groups):
        matrix[number, list(group)] = 1
    return matrix


def argmax_links(attention: Map) -> Links:
    """Each target word (row) with the source word (column) that it attends to most; the first of equal ones.

    A row of zeros, which is a word that no token stands for, is linked to nothing.
    """
    if attention.shape[1] == 0:
        return frozenset()
    best = attention.argmax(1)
    return frozenset((int(best[row]), row) for row in range(len(attention)) if attention[row, best[row]] > 0)


def intersection(forward: AbstractSet[Link], backward: AbstractSet[Link]) -> Links:
    """The links that both directions found: few, and mostly right."""
    return frozenset(forward & backward)


def union(forward: AbstractSet[Link], backward: AbstractSet[Link]) -> Links:
    """The links that either direction found: most of the right ones, and many others."""
    return frozenset(forward | backward)


def grow_diag_final_and(forward: AbstractSet[Link], backward: AbstractSet[Link]) -> Links:
    """Between intersection and union: Koehn et al. 2005, "Edinburgh system description for the 2005 IWSLT evaluation".

    The intersection grows by links of the union that touch it, corners included, and bring in a word that has no link
    yet; at the end those of each direction are added whose words both have none.
    """
    links = set(forward & backward)
    candidates = sorted(forward | backward)
    sources, targets = {i for i, _ in links}, {j for _, j in links}

    def add(link: Link) -> None:
        links.add(link)
        sources.add(link[0])
        targets.add(link[1])

    num_before = -1
    while len(links) > num_before:
        num_before = len(links)
        for i, j in (link for link in candidates if link in links):
            for down, right in _NEIGHBOURS:
                near = (i + down, j + right)
                is_candidate = near in forward or near in backward
                if is_candidate and (near[0] not in sources or near[1] not in targets):
                    add(near)
    for found in (forward, backward):
        for link in sorted(found):
            if link[0] not in sources and link[1] not in targets:
                add(link)
    return frozenset(links)


SYMMETRIZATIONS: dict[str, Callable[[AbstractSet[Link], AbstractSet[Link]], Links]] = {
    "intersection": intersection,
    "union": union,
    "grow-diag-final-and": grow_diag_final_and,
}
"""How the links of two directions become one set, by name. Both sets hold (source word, target word)."""


def flipped(links: Iterable[Link]) -> Links:
    """The links of the opposite direction as (source word, target word) of this one."""
    return frozenset((j, i) for i, j in links)


def diagonal_links(num_source: int, num_target: int) -> Links:
    """Each target word with the source word at the same place, in proportion: a baseline without a model."""
    if num_source == 0:
        return frozenset()
    return frozenset((int((j + 0.5) * num_source / num_target), j) for j in range(num_target))


def to_pharaoh(links: Iterable[Link]) -> str:
    """Links as "i-j i-j", in order."""
    return " ".join(f"{i}-{j}" for i, j in sorted(links))


def from_pharaoh(text: str) -> Links:
    """The links of "i-j i-j"; ValueError names one that cannot be read."""
    return frozenset(_read_links(text))


def _read_links(text: str) -> Iterator[Link]:
    for part in text.split():
        source, dash, target = part.partition("-")
        if not (dash and source.isdecimal() and target.isdecimal()):
            raise ValueError(f"{part!r} is not a link, which is two numbers with a dash between them, such as 0-2")
        yield int(source), int(target)


class AlignmentScore(NamedTuple):
    """How links compare with those of people, each from 0 to 1. A lower error rate is better."""

    error_rate: float
    precision: float
    recall: float


def alignment_error_rate(
    found: Sequence[AbstractSet[Link]],
    sure: Sequence[AbstractSet[Link]],
    possible: Sequence[AbstractSet[Link]] | None = None,
) -> AlignmentScore:
    """AER over all sentences together: Och and Ney 2003, section 6, https://aclanthology.org/J03-1002.

    `possible` links are no mistakes but need not be found; sure ones are possible too. Where people marked sure links
    alone, as when `possible` is None, the rate is one minus the F1 score. ValueError where nothing can be scored.
    """
    num_found = num_sure = num_found_sure = num_found_possible = 0
    for number, (links, wanted) in enumerate(zip(found, sure, strict=True)):
        allowed = wanted | possible[number] if possible is not None else wanted
        num_found += len(links)
        num_sure += len(wanted)
        num_found_sure += len(links & wanted)
        num_found_possible += len(links & allowed)
    if num_found + num_sure == 0:
        raise ValueError("there are no links at all to compare")
    return AlignmentScore(
        error_rate=1 - (num_found_sure + num_found_possible) / (num_found + num_sure),
        precision=num_found_possible / num_found if num_found else 0.0,
        recall=num_found_sure / num_sure if num_sure else 0.0,
    )
