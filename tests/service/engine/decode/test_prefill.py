from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from service.engine.decode.prefill import Pending, choose_group

LIMIT = 200
pending = st.lists(
    st.integers(0, LIMIT - 1).flatmap(lambda place: st.builds(Pending, st.just(place), st.integers(1, LIMIT - place))),
    min_size=1,
    max_size=20,
)


@given(pending, st.integers(1, 300))
def test_groups(prompts: list[Pending], max_tokens: int) -> None:
    group = choose_group(prompts, max_tokens, LIMIT)
    members = [prompts[member] for member in group.members]
    assert group.members[0] == 0  # nobody is passed over for ever
    assert list(group.members) == sorted(set(group.members))
    assert 1 <= len(members) * group.num_tokens <= max_tokens
    assert max(member.position for member in members) + group.num_tokens <= LIMIT
    if len(members) > 1:
        assert all(member.remaining <= group.num_tokens for member in members)  # only one that is alone is cut
        padding = sum(group.num_tokens - member.remaining for member in members)
        assert padding <= len(members) * 2 * max(16, group.num_tokens // 4)


def test_prompts_of_like_length_run_together() -> None:
    prompts = [Pending(0, length) for length in (30, 100, 28, 35, 5, 30)]
    assert choose_group(prompts, 1000, LIMIT) == ((0, 2, 3, 5), 35)
    assert choose_group(prompts, 80, LIMIT) == ((0, 2), 30)


def test_a_long_prompt_is_cut_and_runs_alone() -> None:
    assert choose_group([Pending(8, 90), Pending(0, 64), Pending(0, 60)], 64, LIMIT) == ((0,), 64)
