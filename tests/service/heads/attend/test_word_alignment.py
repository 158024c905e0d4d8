from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from export.heads import Alignment
from service.errors import InputError
from service.heads.attend.tokens import Token, TokenSequence
from service.heads.attend.word_alignment import AlignmentSetting, AlignmentWishes, align, choose_setting
from tests.service.attention_fakes import FakeAttentionEngine, support

ENGINE = FakeAttentionEngine("encoder_decoder")


def word(text: str, start: int) -> Token:
    return Token(9, text, start, start + len(text), text_index=0)


def special(text: str) -> Token:
    return Token(1, text, special=True)


# "red house" of two pieces in "house", and "rotes Haus": the tag and the end beside the source, the begin token before
# the target.
SOURCE = TokenSequence(
    ("red house",), (special("<2de>"), word("red", 0), word("hou", 4), word("se", 7), special("</s>"))
)
TARGET = TokenSequence(("rotes Haus",), (special("<s>"), word("rotes", 0), word("Haus", 6)))


def maps(rows: list[list[float]]) -> Any:
    """Two heads: the rows, and one that looks at nothing in particular."""
    even = np.full_like(np.array(rows, np.float32), 1 / len(rows[0]))
    return np.stack([np.array(rows, np.float32), even])


# <s> chooses "rotes" and looks at "red"; "rotes" chooses "Haus" and looks at both halves of "house"; the last row
# chooses the end. Most of the weight lies on special tokens, as it often does.
FORWARD = maps([[0.6, 0.3, 0.1, 0.0, 0.0], [0.5, 0.2, 0.15, 0.15, 0.0], [0.0, 0.9, 0.0, 0.0, 0.1]])


def test_words_are_linked_through_their_pieces_and_never_to_special_tokens() -> None:
    found = align(AlignmentSetting("argmax", 0, 0, shifted=False), SOURCE, TARGET, {"forward": FORWARD})
    assert found.pharaoh() == "0-0 1-1"
    assert [token.text for token in found.source_words] == ["red", "house"]
    assert [token.text for token in found.target_words] == ["rotes", "Haus"]


def test_shifted_takes_the_row_that_reads_the_token() -> None:
    found = align(AlignmentSetting("argmax", 0, 0, shifted=True), SOURCE, TARGET, {"forward": FORWARD})
    assert found.pharaoh() == "0-1 1-0"  # "rotes" reads "house" then, "Haus" reads "red"


def test_all_heads_together_are_their_mean_or_their_maximum() -> None:
    heads = np.zeros((2, 3, 5), np.float32)
    heads[0, 0], heads[1, 0] = [0, 0.6, 0.4, 0, 0], [0, 0.3, 0.35, 0.35, 0]
    heads[:, 1] = heads[:, 2] = [0, 0, 1, 0, 0]
    mean = align(AlignmentSetting("argmax", 0, "mean", shifted=False), SOURCE, TARGET, {"forward": heads})
    largest = align(AlignmentSetting("argmax", 0, "max", shifted=False), SOURCE, TARGET, {"forward": heads})
    assert mean.pharaoh() == "1-0 1-1"  # .45 for "red", .55 for "house"
    assert largest.pharaoh() == "1-0 1-1"  # .6 for "red", .4 + .35 for "house"
    first = align(AlignmentSetting("argmax", 0, 0, shifted=False), SOURCE, TARGET, {"forward": heads})
    assert first.pharaoh() == "0-0 1-1"


def test_both_directions_are_combined() -> None:
    # The opposite translation reads <2en> rotes Haus </s> and says <s> red hou se: "red" looks at "Haus", "house" too.
    backward = maps([[0.0, 0.2, 0.8, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.1, 0.9, 0.0], [0.0, 0.0, 0.0, 1.0]])
    both = {"forward": FORWARD, "backward": backward}
    found = {
        method: align(AlignmentSetting(method, 0, 0, shifted=False), SOURCE, TARGET, both).pharaoh()  # type: ignore[arg-type]
        for method in ("intersection", "union", "grow-diag-final-and")
    }
    assert found == {"intersection": "1-1", "union": "0-0 0-1 1-1", "grow-diag-final-and": "0-0 0-1 1-1"}


def test_nothing_said_is_aligned_with_nothing() -> None:
    empty = TokenSequence(("",), (special("<s>"),))
    found = align(AlignmentSetting("argmax", 0, 0, shifted=False), SOURCE, empty, {"forward": FORWARD[:, :1]})
    assert (found.pharaoh(), found.target_words) == ("", ())


@pytest.mark.parametrize(("num_layers", "layer"), [(1, 0), (2, 1), (3, 1), (6, 4)], ids=["one", "two", "three", "six"])
def test_without_a_choice_of_the_bundle_it_is_the_last_layer_but_one(num_layers: int, layer: int) -> None:
    found = choose_setting(AlignmentWishes(), support(ENGINE, num_decoder_layers=num_layers), "m")
    assert found == ("argmax", layer, "mean", False)


def test_the_bundles_choice_holds_where_the_request_makes_none() -> None:
    bundle = support(ENGINE, alignment=Alignment(layer=0, head=1, shifted=True, aggregate="none"))
    assert choose_setting(AlignmentWishes(), bundle, "m") == ("argmax", 0, 1, True)
    assert choose_setting(AlignmentWishes("union", head="max"), bundle, "m") == ("union", 0, "max", True)
    assert choose_setting(AlignmentWishes(layer=1), bundle, "m") == ("argmax", 1, "mean", True)
    assert choose_setting(AlignmentWishes(layer=0, shifted=False), bundle, "m") == ("argmax", 0, 1, False)
    largest = support(ENGINE, alignment=Alignment(layer=0, aggregate="max"))
    assert choose_setting(AlignmentWishes(), largest, "m").head == "max"


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        (AlignmentWishes(layer=2), "the layer 2, but the model m has 2: allowed are 0 to 1"),
        (AlignmentWishes(layer=-1), "the layer -1"),
        (AlignmentWishes(head=2), "the head 2, but the model m has 2: allowed are 0 to 1"),
    ],
)
def test_a_layer_or_head_that_is_not_there_is_refused(wishes: AlignmentWishes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        choose_setting(wishes, support(ENGINE), "m")
