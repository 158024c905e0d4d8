from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from service.engine.core.batches import cut_batches


@given(st.lists(st.integers(1, 20), max_size=30).map(sorted), st.integers(20, 80), st.integers(1, 40))
def test_batches_of_like_length(lengths: list[int], max_tokens: int, overhead_tokens: int) -> None:
    batches = cut_batches(lengths, max_tokens, overhead_tokens)
    assert [index for batch in batches for index in batch] == list(range(len(lengths)))
    groups = [[lengths[index] for index in batch] for batch in batches]
    assert all(len(group) * group[-1] <= max_tokens for group in groups)
    for group in groups:
        for count, (before, after) in enumerate(pairwise(group), 1):
            assert (after - before) * count <= overhead_tokens  # its padding costs less than a batch
    for group, following in pairwise(groups):
        has_room = (len(group) + 1) * following[0] <= max_tokens
        assert not has_room or (following[0] - group[-1]) * len(group) > overhead_tokens
