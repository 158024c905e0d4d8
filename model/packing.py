"""Running text as one sequence of tokens, and that sequence in blocks: packing, which wastes no position on padding."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

from model.tokenizer import EOS, Tokenizer


def pack(documents: Iterable[str], tokenizer: Tokenizer) -> array[int]:
    """The ids of all documents one after the other, each with an end token behind it."""
    end = tokenizer.token_id(EOS)
    ids = array("i")
    for document in documents:  # one by one: the library keeps much beside the ids
        ids.extend(tokenizer.encode(document))
        ids.append(end)
    return ids


def blocks(ids: array[int], size: int, end_id: int) -> list[Sequence[int]]:
    """Cut a sequence into rows of at most `size` + 1 tokens: all but the last are read, all but the first predicted.

    A row begins with the last token of the row before it, the first one with an end token, as every document does; so
    each token of the sequence is predicted once.
    """
    whole = array("i", [end_id]) + ids
    return [whole[start : start + size + 1] for start in range(0, len(ids), size)]
