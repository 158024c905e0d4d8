from __future__ import annotations

import pytest

from service.errors import InputError
from service.heads.attend.selection import Outline, Selection, Wishes, check_num_values, select
from tests.service.attention_fakes import FakeAttentionEngine, support

TRANSLATOR = support(FakeAttentionEngine("encoder_decoder"))


def fault(wishes: Wishes, architecture: str = "encoder_decoder") -> str:
    with pytest.raises(InputError) as caught:
        select(wishes, support(FakeAttentionEngine(architecture)), "m")
    return str(caught.value)


def test_the_most_telling_kind_is_the_default() -> None:
    assert select(Wishes(), TRANSLATOR, "m").kinds == ("cross",)
    assert select(Wishes(), support(FakeAttentionEngine("encoder")), "m").kinds == ("encoder",)
    assert select(Wishes(), support(FakeAttentionEngine("decoder")), "m").kinds == ("decoder",)


def test_all_is_what_the_model_has() -> None:
    found = select(Wishes(kind="all"), TRANSLATOR, "m")
    assert found.layers == {"encoder": (0, 1, 2), "decoder": (0, 1), "cross": (0, 1)}
    assert (found.heads, found.num_maps) == ((0, 1), 2)


def test_layers_and_heads_keep_the_order_of_the_request() -> None:
    found = select(Wishes(kind="encoder", layers=(2, 0), heads=(1,)), TRANSLATOR, "m")
    assert (found.layers, found.heads) == ({"encoder": (2, 0)}, (1,))
    assert found.needed_layers() == {0, 2}


def test_rollout_needs_the_layers_below() -> None:
    found = select(Wishes(kind="encoder", layers=(2,), aggregate="rollout"), TRANSLATOR, "m")
    assert found.needed_layers() == {0, 1, 2}
    assert found.num_maps == 1


@pytest.mark.parametrize(
    ("wishes", "architecture", "message"),
    [
        (Wishes(kind="cross"), "encoder", "`kind` is 'cross', but the model m has the attention: encoder"),
        (Wishes(kind="encoder", layers=(3,)), "encoder", "3 layers of encoder attention: allowed are 0 to 2"),
        (Wishes(kind="all", layers=(2,)), "encoder_decoder", "2 layers of decoder attention: allowed are 0 to 1"),
        (Wishes(layers=(-1,)), "decoder", "`layers` has -1"),
        (Wishes(heads=(0, 2)), "decoder", "`heads` has 2, but each layer of the model m has 2 heads"),
        (Wishes(aggregate="rollout"), "encoder_decoder", "Allowed with it: kind encoder or decoder"),
        (Wishes(kind="all", aggregate="rollout"), "encoder_decoder", "Allowed with it: kind encoder or decoder"),
        (Wishes(aggregate="rollout", heads=(0,)), "encoder", "`heads` cannot be chosen with aggregate rollout"),
        (Wishes(aggregate="rollout", norms=True), "encoder", "`norms` cannot be had with aggregate rollout"),
    ],
)
def test_what_the_model_does_not_have_is_refused(wishes: Wishes, architecture: str, message: str) -> None:
    assert message in fault(wishes, architecture)


def outline(wishes: Wishes, num_source: int, num_target: int) -> Outline:
    found: Selection = select(wishes, TRANSLATOR, "m")
    return Outline(found, ["s"] * num_source, ["t"] * num_target)


def test_the_numbers_of_an_answer_are_counted() -> None:
    assert outline(Wishes(), 5, 7).num_values() == 2 * 2 * 5 * 7
    assert outline(Wishes(kind="all"), 5, 7).num_values() == 3 * 2 * 25 + 2 * 2 * 49 + 2 * 2 * 35
    assert outline(Wishes(kind="all", norms=True, heads=(0,)), 5, 7).num_values() == 2 * (3 * 25 + 2 * 49 + 2 * 35)
    assert outline(Wishes(aggregate="max", layers=(1,)), 5, 7).num_values() == 35


def test_an_answer_that_is_too_large_is_refused_with_the_sum() -> None:
    check_num_values(outline(Wishes(), 5, 7), 140)
    with pytest.raises(InputError) as caught:
        check_num_values(outline(Wishes(), 5, 7), 139)
    assert "140 numbers (cross 2 layers x 2 maps x 7 x 5), allowed: 139" in str(caught.value)
