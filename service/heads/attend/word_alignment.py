"""Word alignment of a text and its translation, from cross-attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.alignment import SYMMETRIZATIONS, Links, argmax_links, flipped, merge_pieces, target_rows, to_pharaoh
from service.errors import InputError
from service.heads.attend.support import AttentionSupport
from service.heads.attend.tokens import Token, TokenSequence, WordGroups, group_words

Method = Literal["argmax", "intersection", "union", "grow-diag-final-and"]
Direction = Literal["forward", "backward"]


@dataclass(frozen=True, slots=True)
class AlignmentWishes:
    """The alignment options of a request. None is the model's choice; `head` "mean" is the mean over all heads."""

    method: Method = "argmax"
    layer: int | None = None
    head: int | Literal["mean", "max"] | None = None
    shifted: bool | None = None


class AlignmentSetting(NamedTuple):
    """The maps to align by: a head of a decoder layer, or all its heads together; see `target_rows` for `shifted`."""

    method: Method
    layer: int
    head: int | Literal["mean", "max"]
    shifted: bool

    @property
    def needs_backward(self) -> bool:
        """Whether the links of the opposite direction are needed too."""
        return self.method in SYMMETRIZATIONS


@dataclass(frozen=True, slots=True)
class WordAlignment:
    """Links (source word, target word), both counted from zero among the words of their text."""

    links: Links
    source_words: tuple[Token, ...]
    target_words: tuple[Token, ...]
    setting: AlignmentSetting

    def pharaoh(self) -> str:
        return to_pharaoh(self.links)


def choose_setting(wishes: AlignmentWishes, support: AttentionSupport, model_name: str) -> AlignmentSetting:
    """What `wishes` mean for a model: the bundle's own choice where they leave it open.

    A bundle that makes no choice is aligned by the mean over the heads of the last layer but one, as Garg et al. 2019
    (https://arxiv.org/abs/1909.02074) found best, or of the last where there are fewer than three. InputError names
    what the model does not have.
    """
    num_layers, num_heads = support.config.num_decoder_layers, support.config.num_heads
    default = support.alignment
    layer: int = num_layers - 2 if num_layers > 2 else num_layers - 1
    head: int | Literal["mean", "max"] = "mean"
    shifted = False
    if default is not None:
        layer, shifted = default.layer, default.shifted
        head = default.head if default.head is not None else "max" if default.aggregate == "max" else "mean"
    if wishes.layer is not None:
        # The head that aligns best in one layer need not do so in another.
        layer, head = wishes.layer, head if wishes.layer == layer else "mean"
    head = wishes.head if wishes.head is not None else head
    shifted = wishes.shifted if wishes.shifted is not None else shifted
    for name, value, size in (("layer", layer, num_layers), ("head", head, num_heads)):
        if isinstance(value, int) and not 0 <= value < size:
            raise InputError(
                f"`alignment` has the {name} {value}, but the model {model_name} has {size}: allowed are 0 to "
                f"{size - 1}",
                parameter="alignment",
            )
    return AlignmentSetting(wishes.method, layer, head, shifted)


def align(
    setting: AlignmentSetting,
    source: TokenSequence,
    target: TokenSequence,
    maps: Mapping[Direction, NDArray[np.float32]],
) -> WordAlignment:
    """The links of a source and what was made of it; `target` is what the decoder read, the begin token first.

    `maps` has the cross-attention (H,T,S) of the setting's layer forward and, where the method needs it, that of the
    opposite translation, whose source and target have the same words.
    """
    source_words = group_words(source).without_specials()
    target_words = group_words(target).without_specials()
    links = _links(setting, maps["forward"], source_words, target_words)
    if setting.needs_backward:
        combine = SYMMETRIZATIONS[setting.method]
        # The groups fit the opposite translation too: one special token stands before each text, tag or begin.
        backward = _links(setting, maps["backward"], target_words, source_words)
        links = combine(links, flipped(backward))
    return WordAlignment(links, source_words.words.tokens, target_words.words.tokens, setting)


def _links(
    setting: AlignmentSetting, heads: NDArray[np.float32], source_words: WordGroups, target_words: WordGroups
) -> Links:
    attention = _one_map(heads, setting)
    # The first row belongs to the begin token, so the groups of the target count one more than `target_rows`.
    rows = [[place - 1 for place in group] for group in target_words.groups]
    return argmax_links(merge_pieces(target_rows(attention, setting.shifted), rows, source_words.groups))


def _one_map(heads: NDArray[np.float32], setting: AlignmentSetting) -> NDArray[np.float32]:
    one: NDArray[np.float32]
    if isinstance(setting.head, int):
        one = heads[setting.head]
    else:
        one = heads.mean(0) if setting.head == "mean" else heads.max(0)
    return one
