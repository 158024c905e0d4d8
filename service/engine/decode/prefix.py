"""The prefix cache: finished rows, for prompts that begin as they do."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple

import numpy as np

from service.engine.core.arrays import Ids
from service.engine.decode.backend import SavedRow

LEAST_REUSE = 16
"""Shorter common prefixes, such as a begin token and a word, are not reused."""


class PrefixKey(NamedTuple):
    """A text as token ids; two with different `head` share too little to be compared.

    The keys and values of a text that was decoded from a source depend on that too: such a text has the key `UNSHARED`.
    """

    token_ids: Ids
    head: bytes

    @classmethod
    def of(cls, token_ids: Ids) -> PrefixKey:
        """The key of a text, whose head is empty where it is too short to share anything."""
        head = token_ids[:LEAST_REUSE]
        return cls(token_ids, head.tobytes() if len(head) == LEAST_REUSE else b"")


UNSHARED = PrefixKey(np.zeros(0, np.int64), b"")
"""The key of a text that is never shared."""


def shared_length(first: PrefixKey, second: PrefixKey) -> int:
    """The length of the common prefix of two texts, in tokens; 0 where it is shorter than `LEAST_REUSE`."""
    if first.head != second.head or not first.head:
        return 0
    length = min(len(first.token_ids), len(second.token_ids))
    differs = first.token_ids[:length] != second.token_ids[:length]
    return int(differs.argmax()) if differs.any() else length


class Found(NamedTuple):
    """A kept row, and how many of its first positions can be reused."""

    row: SavedRow
    length: int


class PrefixPool:
    """Kept rows, up to `max_tokens` positions in all; the least recently used is evicted first.

    The loops of one engine share it. An evicted row is freed when no loop copies it any more.
    """

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._rows: OrderedDict[bytes, tuple[PrefixKey, SavedRow]] = OrderedDict()
        self._lock = threading.Lock()
        self.num_tokens = 0

    def find(self, prompt: PrefixKey) -> Found | None:
        """The row with the longest common prefix with `prompt`."""
        if not prompt.head:
            return None
        with self._lock:
            name, length = self._nearest(prompt)
            if not length:
                return None
            self._rows.move_to_end(name)
            return Found(self._rows[name][1], length)

    def wants(self, text: PrefixKey) -> bool:
        """Whether `text` should be kept: it fits, and no row holds it nearly whole; one that does is marked as used."""
        if not text.head or len(text.token_ids) > self._max_tokens:
            return False
        with self._lock:
            name, length = self._nearest(text)
            if len(text.token_ids) - length >= LEAST_REUSE:
                return True
            self._rows.move_to_end(name)
            return False

    def keep(self, text: PrefixKey, row: SavedRow) -> None:
        """Keep the row of `text`, in place of those whose texts are prefixes of it."""
        with self._lock:
            for name, (other, _) in list(self._rows.items()):
                if shared_length(text, other) == len(other.token_ids):
                    self._drop(name)
            self._rows[text.token_ids.tobytes()] = text, row
            self.num_tokens += row.length
            while self.num_tokens > self._max_tokens:
                self._drop(next(iter(self._rows)))

    def _nearest(self, text: PrefixKey) -> tuple[bytes, int]:
        lengths = ((name, shared_length(text, other)) for name, (other, _) in self._rows.items())
        return max(lengths, key=lambda item: item[1], default=(b"", 0))

    def _drop(self, name: bytes) -> None:
        _, row = self._rows.pop(name)
        self.num_tokens -= row.length


def key_of(token_ids: tuple[int, ...] | list[int]) -> PrefixKey:
    """The key of token ids."""
    return PrefixKey.of(np.array(token_ids, np.int64))
