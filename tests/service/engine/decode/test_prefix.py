from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.decode.prefix import LEAST_REUSE, PrefixPool, key_of, shared_length

HEADER = tuple(range(100, 100 + LEAST_REUSE))


class Kept(NamedTuple):
    length: int
    name: str = ""


texts = st.lists(st.integers(0, 1), max_size=LEAST_REUSE + 8)


@given(texts, texts, st.integers(0, LEAST_REUSE + 8))
def test_shared_length(first: list[int], second: list[int], num_equal: int) -> None:
    second = first[:num_equal] + second
    expected = 0
    while expected < min(len(first), len(second)) and first[expected] == second[expected]:
        expected += 1
    assert shared_length(key_of(first), key_of(second)) == (expected if expected >= LEAST_REUSE else 0)


def test_the_row_that_has_most_in_common_is_found() -> None:
    pool = PrefixPool(1000)
    for tail in ((1,), (1, 2, 3), (2,)):
        pool.keep(key_of((*HEADER, *tail)), Kept(len(HEADER) + len(tail)))
    found = pool.find(key_of((*HEADER, 1, 2, 4)))
    assert found is not None
    assert (found.row.length, found.length) == (LEAST_REUSE + 3, LEAST_REUSE + 2)
    assert pool.find(key_of((0, *HEADER))) is None
    assert pool.find(key_of(HEADER[:-1])) is None
    assert pool.num_tokens == LEAST_REUSE + 3 + LEAST_REUSE + 1  # the first is a beginning of the second


def test_whoever_was_of_no_use_for_longest_goes_first() -> None:
    pool = PrefixPool(100)
    texts = {name: key_of((name, *range(39))) for name in (1, 2, 3)}
    pool.keep(texts[1], Kept(40))
    pool.keep(texts[2], Kept(40))
    assert pool.find(texts[1]) is not None
    pool.keep(texts[3], Kept(40))
    assert [pool.find(text) is not None for text in texts.values()] == [True, False, True]
    assert pool.num_tokens == 80
    pool.keep(texts[3], Kept(40))
    assert pool.num_tokens == 80


def test_what_is_wanted() -> None:
    pool = PrefixPool(50)
    text = tuple(range(40))
    assert pool.wants(key_of(text))
    assert not pool.wants(key_of(text[: LEAST_REUSE - 1]))
    assert not pool.wants(key_of(tuple(range(51))))
    pool.keep(key_of(text), Kept(40))
    assert not pool.wants(key_of(text))
    assert not pool.wants(key_of((*text, 7)))
    assert pool.wants(key_of((*text[:20], *range(50, 50 + LEAST_REUSE))))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60)), max_size=30), st.integers(1, 150))
def test_the_pool_is_bounded(events: list[tuple[int, int]], max_tokens: int) -> None:
    pool = PrefixPool(max_tokens)
    for name, length in events:
        text = key_of((name, *range(length)))
        if pool.wants(text):
            pool.keep(text, Kept(length + 1))
        assert pool.num_tokens <= max_tokens
        found = pool.find(text)
        if found is not None:
            assert found.length <= found.row.length
    assert np.sum([row.length for _, row in pool._rows.values()]) == pool.num_tokens


@pytest.fixture
def busy_threads() -> Iterator[None]:
    """Threads take turns in the midst of everything."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("busy_threads")
@pytest.mark.parametrize("verb", ["find", "wants"])
def test_loops_may_look_while_others_keep(verb: str) -> None:
    pool = PrefixPool(20 * (LEAST_REUSE + 2))
    texts = [key_of((*HEADER, number, number)) for number in range(400)]

    def keep(part: int) -> None:
        for text in texts[part::2]:
            pool.keep(text, Kept(LEAST_REUSE + 2))

    def look(part: int) -> None:
        for text in texts[part::2]:
            getattr(pool, verb)(text)

    with ThreadPoolExecutor(4) as threads:
        for future in [threads.submit(work, part) for work in (keep, look) for part in range(2)]:
            future.result()
    assert pool.num_tokens == sum(row.length for _, row in pool._rows.values()) <= 20 * (LEAST_REUSE + 2)
