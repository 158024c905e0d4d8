from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.core.batches import choose_batch
from service.engine.encode.embedding import EmbeddingRequest
from service.engine.encode.embedding_batches import build_arrays


def chosen(lengths: list[int], max_tokens: int = 1000, overhead_tokens: int = 10) -> list[int]:
    """The lengths of the next batch, in the order of their coming."""
    return [lengths[index] for index in choose_batch(lengths, max_tokens, overhead_tokens)]


@pytest.mark.parametrize(
    ("lengths", "batch"),
    [
        ([7], [7]),
        ([20, 21, 19, 20], [20, 21, 19, 20]),  # of like length
        ([20, 100, 19, 100, 21], [20, 19, 21]),  # a long one would have all of them computed at its length
        ([100, 20, 19, 21], [100]),
        ([100, 20, 97, 21], [100, 97]),
        ([3, 4, 5, 6, 7], [3, 4, 5, 6, 7]),  # too short to be worth batches of their own
    ],
)
def test_like_lengths_run_together(lengths: list[int], batch: list[int]) -> None:
    assert chosen(lengths) == batch


def test_where_a_batch_costs_much_in_itself_whatever_waits_runs_together() -> None:
    lengths = [20, 100, 19, 100, 21]
    assert chosen(lengths, overhead_tokens=10_000) == lengths
    assert chosen(lengths, max_tokens=300, overhead_tokens=10_000) == [20, 100, 21]


def test_where_a_batch_costs_nothing_only_equals_run_together() -> None:
    assert chosen([5, 6, 5, 4, 5], overhead_tokens=0) == [5, 5, 5]


def test_of_equals_the_older_go_first() -> None:
    assert choose_batch([8] * 10, 24, 10) == [0, 1, 2]
    assert choose_batch([8, 9, 9, 9, 9], 27, 10) == [0, 1, 2]
    assert choose_batch([9, 8, 8, 8, 8], 27, 10) == [0, 1, 2]


def test_the_oldest_runs_even_if_its_share_is_smaller() -> None:
    assert choose_batch([30, 3], 10, 10) == [0]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60), st.integers(40, 300), st.integers(0, 100))
def test_batches_hold_the_oldest_within_the_budget(lengths: list[int], max_tokens: int, overhead_tokens: int) -> None:
    batch = choose_batch(lengths, max_tokens, overhead_tokens)
    assert batch[0] == 0
    assert batch == sorted(set(batch))
    assert max(lengths[index] for index in batch) * len(batch) <= max_tokens


@given(st.lists(st.integers(1, 40), min_size=1, max_size=40), st.integers(0, 100))
def test_company_is_never_worse_than_none_and_passes_nobody_over(lengths: list[int], overhead_tokens: int) -> None:
    batch = choose_batch(lengths, 100_000, overhead_tokens)
    longest, shortest = max(lengths[index] for index in batch), min(lengths[index] for index in batch)
    real = sum(lengths[index] for index in batch)
    assert real * (overhead_tokens + lengths[0]) >= lengths[0] * (overhead_tokens + longest * len(batch))
    assert [index for index in range(len(lengths)) if shortest < lengths[index] < longest and index not in batch] == []


def test_arrays_are_padded_on_the_right() -> None:
    arrays = build_arrays([EmbeddingRequest((5, 6, 7)), EmbeddingRequest((8,))], pad_id=9)
    assert arrays.input_ids.tolist() == [[5, 6, 7], [8, 9, 9]]
    assert arrays.lengths.tolist() == [3, 1]
    assert arrays.token_type_ids is None
    assert (arrays.num_tokens, arrays.num_padded_tokens) == (4, 2)
    assert {arrays.input_ids.dtype, arrays.lengths.dtype} == {np.dtype(np.int64)}


def test_token_types_are_zero_where_a_request_has_none() -> None:
    arrays = build_arrays([EmbeddingRequest((5, 6)), EmbeddingRequest((8, 9, 3), token_type_ids=(0, 1, 1))], pad_id=1)
    assert arrays.token_type_ids is not None
    assert arrays.token_type_ids.tolist() == [[0, 0, 0], [0, 1, 1]]
