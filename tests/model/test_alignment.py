from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.alignment import (
    alignment_error_rate,
    argmax_links,
    diagonal_links,
    flipped,
    from_pharaoh,
    grow_diag_final_and,
    intersection,
    merge_pieces,
    target_rows,
    to_pharaoh,
    union,
)

LINKS = st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5)))


def links(text: str) -> frozenset[tuple[int, int]]:
    return from_pharaoh(text)


def test_the_shifted_rows_are_those_that_read_the_token() -> None:
    attention = np.arange(8.0).reshape(4, 2)
    assert target_rows(attention, shifted=False).tolist() == [[0, 1], [2, 3], [4, 5]]
    assert target_rows(attention, shifted=True).tolist() == [[2, 3], [4, 5], [6, 7]]


def test_pieces_are_summed_over_keys_and_averaged_over_queries() -> None:
    attention = np.array([[0.1, 0.2, 0.7], [0.5, 0.1, 0.4], [0.0, 1.0, 0.0]])
    merged = merge_pieces(attention, [[0, 1], [2]], [[0], [1, 2]])
    np.testing.assert_allclose(merged, [[0.3, 0.7], [0.0, 1.0]], atol=1e-7)
    np.testing.assert_allclose(merged.sum(-1), 1, atol=1e-6)


def test_pieces_of_every_head_are_merged_at_once() -> None:
    heads = np.random.default_rng(0).dirichlet(np.ones(4), (3, 5)).astype(np.float32)
    merged = merge_pieces(heads, [[0, 1, 2], [3, 4]], [[0, 3], [1, 2]])
    assert merged.shape == (3, 2, 2)
    np.testing.assert_allclose(merged[1], merge_pieces(heads[1], [[0, 1, 2], [3, 4]], [[0, 3], [1, 2]]), atol=1e-6)


def test_a_word_without_tokens_gets_zeros_and_no_link() -> None:
    merged = merge_pieces(np.array([[0.25, 0.75]]), [[0], []], [[0], [1]])
    assert merged.tolist() == [[0.25, 0.75], [0.0, 0.0]]
    assert argmax_links(merged) == links("1-0")


def test_each_target_word_is_linked_to_its_largest_weight() -> None:
    attention = np.array([[0.1, 0.9, 0.0], [0.6, 0.1, 0.3], [0.4, 0.2, 0.4]])
    assert argmax_links(attention) == links("1-0 0-1 0-2")
    assert argmax_links(np.zeros((2, 0))) == frozenset()


def test_grow_diag_final_and_against_a_hand_computation() -> None:
    # The intersection is 0-0 and 2-2. 1-1 touches both and brings in two new words; 2-1 touches but both its words are
    # linked by then; 4-4 touches nothing, and final-and adds it; 0-4 has a word that is linked, so it stays out.
    forward = links("0-0 1-1 2-2 4-4")
    backward = links("0-0 2-2 2-1 0-4")
    assert intersection(forward, backward) == links("0-0 2-2")
    assert union(forward, backward) == links("0-0 1-1 2-2 4-4 2-1 0-4")
    assert grow_diag_final_and(forward, backward) == links("0-0 1-1 2-2 4-4")


def test_growing_goes_on_from_what_was_added() -> None:
    assert grow_diag_final_and(links("0-0 1-0 2-0 3-0"), links("0-0")) == links("0-0 1-0 2-0 3-0")


def test_growing_needs_a_neighbour_and_one_new_word() -> None:
    assert grow_diag_final_and(links("0-0 0-2"), links("0-0 2-0")) == links("0-0")


@given(LINKS, LINKS)
def test_symmetrized_links_lie_between_intersection_and_union(
    forward: set[tuple[int, int]], backward: set[tuple[int, int]]
) -> None:
    grown = grow_diag_final_and(forward, backward)
    assert intersection(forward, backward) <= grown <= union(forward, backward)


@given(LINKS)
def test_pharaoh_is_read_as_it_is_written(found: set[tuple[int, int]]) -> None:
    assert from_pharaoh(to_pharaoh(found)) == found
    assert flipped(flipped(found)) == found


def test_pharaoh_is_in_order() -> None:
    assert to_pharaoh({(2, 1), (0, 10), (0, 9)}) == "0-9 0-10 2-1"


@pytest.mark.parametrize("text", ["0", "0-", "-1", "a-1", "0-1-2", "0?1"])
def test_what_is_no_link_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=f"'{text[:2]}"):
        from_pharaoh(f"0-0 {text}")


def test_the_diagonal_is_in_proportion() -> None:
    assert diagonal_links(3, 3) == links("0-0 1-1 2-2")
    assert diagonal_links(6, 3) == links("1-0 3-1 5-2")
    assert diagonal_links(2, 4) == links("0-0 0-1 1-2 1-3")
    assert diagonal_links(0, 4) == frozenset()


def test_aer_against_a_hand_computation() -> None:
    # Sentence 1: found 3, sure 2, of which 1 found, possible found 2. Sentence 2: found 1, sure 1, found it.
    found = [links("0-0 1-1 2-2"), links("0-0")]
    sure = [links("0-0 1-2"), links("0-0")]
    possible = [links("1-1"), frozenset[tuple[int, int]]()]
    score = alignment_error_rate(found, sure, possible)
    assert score.error_rate == pytest.approx(1 - (2 + 3) / (4 + 3))
    assert score.precision == pytest.approx(3 / 4)
    assert score.recall == pytest.approx(2 / 3)


def test_aer_of_sure_links_alone_is_one_minus_f1() -> None:
    score = alignment_error_rate([links("0-0 1-1")], [links("0-0 2-2 3-3")])
    f1 = 2 * score.precision * score.recall / (score.precision + score.recall)
    assert score.error_rate == pytest.approx(1 - f1)


def test_aer_of_what_is_right_and_of_nothing() -> None:
    assert alignment_error_rate([links("0-1")], [links("0-1")]) == (0.0, 1.0, 1.0)
    assert alignment_error_rate([frozenset()], [links("0-1")]) == (1.0, 0.0, 0.0)
    with pytest.raises(ValueError, match="no links"):
        alignment_error_rate([frozenset()], [frozenset()])
