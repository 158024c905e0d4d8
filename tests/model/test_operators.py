import cmath
import math

import pytest
import torch
from torch import Tensor

from model.operators import attend, attention_weights, rotate, update_cache

H, D = 2, 3


def states(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def test_update_cache_writes_each_row_at_its_own_place_and_leaves_the_input() -> None:
    cache, new = states(2, 5, 4), states(2, 2, 4, seed=1)
    before = cache.clone()
    updated = update_cache(cache, new, torch.tensor([0, 3]))
    wanted = before.clone()
    wanted[0, 0:2], wanted[1, 3:5] = new[0], new[1]
    assert torch.equal(updated, wanted)
    assert torch.equal(cache, before)


def test_update_cache_beyond_the_capacity_is_an_error() -> None:
    with pytest.raises(IndexError):
        update_cache(states(1, 4, 2), states(1, 2, 2), torch.tensor([3]))


def obvious_attention(query: Tensor, key: Tensor, value: Tensor, lengths: list[int], is_causal: bool) -> Tensor:
    """Attention in loops, one query of one head at a time."""
    result = torch.zeros_like(query)
    num_queries = query.shape[1]
    for row, length in enumerate(lengths):
        for head in range(H):
            part = slice(head * D, (head + 1) * D)
            for position in range(num_queries):
                seen = range(length if not is_causal else length - num_queries + position + 1)
                if not seen:
                    continue
                scores = [float(query[row, position, part] @ key[row, k, part]) / math.sqrt(D) for k in seen]
                total = sum(map(math.exp, scores))
                for k, score in zip(seen, scores, strict=True):
                    result[row, position, part] += math.exp(score) / total * value[row, k, part]
    return result


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("lengths", [[6, 6], [4, 6], [2, 3]])
def test_attend_is_the_formula(lengths: list[int], is_causal: bool) -> None:
    query, key, value = states(2, 3, H * D), states(2, 6, H * D, seed=1), states(2, 6, H * D, seed=2)
    result = attend(query, key, value, torch.tensor(lengths), H, H, is_causal)
    torch.testing.assert_close(result, obvious_attention(query, key, value, lengths, is_causal))


@pytest.mark.parametrize("is_causal", [False, True])
def test_a_bias_is_added_to_the_scaled_scores(is_causal: bool) -> None:
    query, key = states(2, 3, H * D), states(2, 6, H * D, seed=1)
    bias, lengths = states(2, H, 3, 6, seed=3), torch.tensor([4, 6])
    weights = attention_weights(query, key, lengths, H, H, is_causal, bias, 0.5)
    for row, head, place in ((0, 1, 2), (1, 0, 0)):
        part = slice(head * D, (head + 1) * D)
        seen = int(lengths[row]) - (2 - place if is_causal else 0)
        scores = 0.5 * key[row, :seen, part] @ query[row, place, part] + bias[row, head, place, :seen]
        torch.testing.assert_close(weights[row, head, place, :seen], scores.softmax(0))
        assert weights[row, head, place, seen:].eq(0).all()


def test_gradient_of_a_shared_bias_is_that_of_the_formula() -> None:
    inputs = [states(2, 3, H * D, seed=seed, dtype=torch.float64).requires_grad_() for seed in (0, 1, 2)]
    inputs.append(states(1, H, 3, 3, seed=3, dtype=torch.float64).requires_grad_())
    lengths = torch.tensor([3, 2])
    assert torch.autograd.gradcheck(lambda q, k, v, b: attend(q, k, v, lengths, H, H, True, b, 0.7), inputs)


def test_no_lengths_are_all_keys() -> None:
    query, key, value = states(2, 3, H * D), states(2, 6, H * D, seed=1), states(2, 6, H * D, seed=2)
    for is_causal in (False, True):
        wanted = attend(query, key, value, torch.tensor([6, 6]), H, H, is_causal)
        assert torch.equal(attend(query, key, value, None, H, H, is_causal), wanted)


@pytest.mark.parametrize("is_causal", [False, True])
def test_attention_rows_sum_to_one_over_what_they_may_see(is_causal: bool) -> None:
    query, key = states(2, 3, H * D), states(2, 6, H * D, seed=1)
    weights = attention_weights(query, key, torch.tensor([4, 6]), H, H, is_causal)
    assert weights.shape == (2, H, 3, 6)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, H, 3))
    assert weights[0, :, :, 4:].eq(0).all()
    if is_causal:
        assert weights[0, :, 0, 2:].eq(0).all()
        assert weights[0, :, 0, :2].gt(0).all()


def test_a_query_that_sees_nothing_gives_zeros() -> None:
    query, key = states(1, 3, H * D), states(1, 3, H * D, seed=1)
    assert attend(query, key, key, torch.tensor([0]), H, H, False).eq(0).all()
    result = attend(query, key, key, torch.tensor([1]), H, H, True)
    assert result[0, :2].eq(0).all()
    assert result[0, 2].ne(0).all()


def test_beams_share_their_source() -> None:
    query, key, value = states(6, 2, H * D), states(2, 5, H * D, seed=1), states(2, 5, H * D, seed=2)
    lengths = torch.tensor([5, 3])
    repeated = attend(
        query,
        key.repeat_interleave(3, 0),
        value.repeat_interleave(3, 0),
        lengths.repeat_interleave(3),
        H,
        H,
        is_causal=False,
    )
    torch.testing.assert_close(attend(query, key, value, lengths, H, H, is_causal=False), repeated)


def test_bfloat16_is_weighed_in_float32() -> None:
    query, key = states(1, 2, H * D).bfloat16(), states(1, 4, H * D, seed=1).bfloat16()
    assert attention_weights(query, key, None, H, H, False).dtype == torch.float32
    assert attend(query, key, key, None, H, H, False).dtype == torch.bfloat16


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("lengths", [None, [4, 2]])
def test_attend_gradient_is_that_of_the_formula(lengths: list[int] | None, is_causal: bool) -> None:
    inputs = [states(2, 3, H * D, seed=seed, dtype=torch.float64).requires_grad_() for seed in (0, 1, 2)]
    inputs[1:] = [states(2, 4, H * D, seed=seed, dtype=torch.float64).requires_grad_() for seed in (1, 2)]
    given = None if lengths is None else torch.tensor(lengths)
    assert torch.autograd.gradcheck(lambda q, k, v: attend(q, k, v, given, H, H, is_causal), inputs)


def test_a_group_of_query_heads_shares_a_head_of_keys_and_values() -> None:
    query, key, value = states(2, 3, 4 * D), states(2, 6, 2 * D, seed=1), states(2, 6, 2 * D, seed=2)
    lengths = torch.tensor([6, 4])
    result = attend(query, key, value, lengths, 4, 2, True)
    for head in range(4):
        queries, keys = (slice(index * D, (index + 1) * D) for index in (head, head // 2))
        alone = attend(query[..., queries], key[..., keys], value[..., keys], lengths, 1, 1, True)
        torch.testing.assert_close(result[..., queries], alone)


@pytest.mark.parametrize("num_kv_heads", [1, 2])
def test_gradient_of_shared_heads_is_that_of_the_formula(num_kv_heads: int) -> None:
    query = states(2, 3, 4 * D, dtype=torch.float64).requires_grad_()
    key, value = (states(2, 4, num_kv_heads * D, seed=seed, dtype=torch.float64).requires_grad_() for seed in (1, 2))
    lengths = torch.tensor([4, 3])
    assert torch.autograd.gradcheck(
        lambda q, k, v: attend(q, k, v, lengths, 4, num_kv_heads, True), (query, key, value)
    )


def angles(num_positions: int, head_size: int) -> Tensor:
    return torch.randn(num_positions, head_size // 2, generator=torch.Generator().manual_seed(9), dtype=torch.float64)


def test_rotation_is_a_product_of_complex_numbers() -> None:
    table, positions = angles(8, 6), torch.tensor([[0, 1, 2], [5, 6, 7]])
    given = states(2, 3, 2 * 6, dtype=torch.float64)
    result = rotate(given, table.cos(), table.sin(), positions, 2)
    for row in range(2):
        for place in range(3):
            for head in range(2):
                for pair in range(3):
                    channels = [6 * head + pair, 6 * head + 3 + pair]
                    number = complex(*given[row, place, channels].tolist())
                    turned = number * cmath.exp(1j * float(table[positions[row, place], pair]))
                    wanted = pytest.approx([turned.real, turned.imag])
                    assert result[row, place, channels].tolist() == wanted


def test_rotation_gradient_is_that_of_the_formula() -> None:
    table, positions = angles(8, 4), torch.tensor([[0, 1, 2], [5, 6, 7]])
    given = states(2, 3, 8, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda part: rotate(part, table.cos(), table.sin(), positions, 2), (given,))


def test_rotation_keeps_the_type_and_computes_in_float32() -> None:
    table, positions = angles(8, 4).float(), torch.tensor([[0, 1, 2]])
    given = states(1, 3, 8).bfloat16()
    result = rotate(given, table.cos(), table.sin(), positions, 2)
    assert torch.equal(result, rotate(given.float(), table.cos(), table.sin(), positions, 2).bfloat16())


def test_shared_source_gradient_is_that_of_the_formula() -> None:
    query = states(4, 2, H * D, dtype=torch.float64).requires_grad_()
    key, value = (states(2, 3, H * D, seed=seed, dtype=torch.float64).requires_grad_() for seed in (1, 2))
    lengths = torch.tensor([3, 2])
    assert torch.autograd.gradcheck(lambda q, k, v: attend(q, k, v, lengths, H, H, False), (query, key, value))


def test_custom_operators_keep_pytorchs_rules() -> None:
    cache, new = states(2, 5, H * D), states(2, 2, H * D, seed=1)
    torch.library.opcheck(update_cache, (cache, new, torch.tensor([0, 3])))
    fused = states(2, 3, 3 * H * D)
    inputs = [part.requires_grad_() for part in fused.chunk(3, dim=-1)]
    torch.library.opcheck(attend, (*inputs, torch.tensor([3, 2]), H, H, True))
    table, positions = angles(8, 4).float(), torch.tensor([[0, 1, 2], [5, 6, 7]])
    rotated = states(2, 3, 12).chunk(3, dim=-1)[1].requires_grad_()
    utils = ("test_schema", "test_autograd_registration", "test_faketensor")  # the fourth is slow, and as for attend
    torch.library.opcheck(rotate, (rotated, table.cos(), table.sin(), positions, 1), test_utils=utils)
