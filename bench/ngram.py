"""The floor for a language model: n-grams with interpolated modified Kneser-Ney smoothing, over the same tokens.

    python -m bench.ngram runs/generate-en/final DATA/gutenberg-train.txt.xz DATA/gutenberg-dev.txt.xz

Chen and Goodman 1999, https://doi.org/10.1006/csla.1999.0128, section 3. An n-gram is known by a number: that of the
n-gram before its last token (the context), times the size of the vocabulary, plus that token. So each order is one
sorted array, built and searched whole.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model.checkpoint import CheckpointError, load_checkpoint
from model.data import DataError, read_documents
from model.packing import pack
from model.perplexity import Perplexity, perplexity, token_log_probs

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]
Discounts = tuple[float, float, float]
"""What is taken off an n-gram's count of one, of two, of three and more."""


@dataclass(frozen=True)
class _Order:
    """The n-grams of one length, sorted by `keys`; the others are one number each, `weights` one for each context."""

    keys: Ids
    discounted: Floats
    """Count less discount."""
    totals: Floats
    """The sum of the counts that follow each context."""
    weights: Floats
    """The share of each context that its discounts leave to the order below."""


class KneserNey:
    """P(token | the `order` - 1 tokens before it), mixed with what shorter contexts say, down to a uniform guess."""

    def __init__(
        self, ids: Sequence[int], vocab_size: int, order: int = 5, discounts: Sequence[Discounts] | None = None
    ) -> None:
        """Count a sequence of ids. `discounts`, one for each order from 1, are else estimated from counts of counts.

        ValueError where there is too little text for that: no n-gram of some order has a count of 1, 2, 3 or 4.
        """
        self.vocab_size, self.order = vocab_size, order
        tokens = np.asarray(ids, np.int64)
        keys, numbers = _number_ngrams(tokens, vocab_size, order)
        self.orders: list[_Order] = []
        for index in range(order):
            if index == order - 1:
                counts = np.bincount(numbers[index], minlength=len(keys[index]))
            else:
                counts = _continuations(numbers[index], numbers[index + 1], len(keys[index]), len(keys[index + 1]))
            num_contexts = len(keys[index - 1]) if index else 1
            given = discounts[index] if discounts else _estimate_discounts(counts, index + 1)
            self.orders.append(_smooth(keys[index], counts, num_contexts, vocab_size, given))

    def log_probs(self, ids: Sequence[int]) -> Floats:
        """The natural log-probability of each token after those before it, the first few after fewer."""
        tokens = np.asarray(ids, np.int64)
        probabilities = np.full(len(tokens), 1 / self.vocab_size)
        contexts = np.zeros(len(tokens), np.int64)  # the number of the n-gram before each token; -1 is one never seen
        for order in self.orders:
            wanted = np.where(contexts >= 0, contexts * self.vocab_size + tokens, -1)
            places = np.searchsorted(order.keys, wanted).clip(max=len(order.keys) - 1)
            is_seen = order.keys[places] == wanted
            is_context = (contexts >= 0) & (order.totals[contexts] > 0)
            totals = np.where(is_context, order.totals[contexts], 1.0)
            own = np.where(is_seen, order.discounted[places], 0.0) / totals
            mixed = own + order.weights[contexts] * probabilities
            probabilities = np.where(is_context, mixed, probabilities)
            ngrams = np.where(is_seen, places, -1)
            contexts = np.concatenate([[-1], ngrams[:-1]])
        logs: Floats = np.log(probabilities)
        return logs


def _number_ngrams(tokens: Ids, vocab_size: int, order: int) -> tuple[list[Ids], list[Ids]]:
    """For each order the sorted keys of its n-grams, and the place among them of the one that ends at each token.

    The first n - 1 tokens end no n-gram, so the places of order n begin with token n.
    """
    keys: list[Ids] = []
    numbers: list[Ids] = []
    contexts = np.zeros(len(tokens), np.int64)
    for length in range(1, order + 1):
        unique, places = np.unique(contexts * vocab_size + tokens[length - 1 :], return_inverse=True)
        keys.append(unique)
        numbers.append(places.astype(np.int64))
        contexts = numbers[-1][:-1]
    return keys, numbers


def _continuations(shorter: Ids, longer: Ids, num_shorter: int, num_longer: int) -> Ids:
    """How many different tokens stand before each n-gram: the (n+1)-grams that end in it.

    The n-gram that opens the text has none before it, and counts for one all the same.
    """
    suffixes = np.empty(num_longer, np.int64)
    suffixes[longer] = shorter[1:]  # that of any occurrence, they are all the same
    counts = np.bincount(suffixes, minlength=num_shorter)
    counts[shorter[0]] = max(1, counts[shorter[0]])
    return counts


def _estimate_discounts(counts: Ids, length: int) -> Discounts:
    """Chen and Goodman's equations 26: from how many n-grams have a count of one, two, three and four."""
    one, two, three, four = (int((counts == number).sum()) for number in (1, 2, 3, 4))
    if not (one and two and three and four):
        raise ValueError(
            f"too little text: {one}, {two}, {three} and {four} {length}-grams have counts of 1 to 4, none may be 0"
        )
    share = one / (one + 2 * two)
    return 1 - 2 * share * two / one, 2 - 3 * share * three / two, 3 - 4 * share * four / three


def _smooth(keys: Ids, counts: Ids, num_contexts: int, vocab_size: int, discounts: Discounts) -> _Order:
    taken = np.array([0.0, *discounts])[counts.clip(max=3)]
    contexts = keys // vocab_size
    totals: Floats = np.bincount(contexts, counts, num_contexts).astype(np.float64)
    left_over = np.bincount(contexts, taken, num_contexts)
    weights = np.divide(left_over, totals, out=np.ones(num_contexts), where=totals > 0)
    return _Order(keys, np.asarray(counts - taken, np.float64), totals, weights)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the perplexity of a checkpoint and of the n-gram model; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.ngram", description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path, help="a decoder, whose tokens are counted")
    parser.add_argument("train", type=Path, help="running text, a paragraph a line, an empty line between documents")
    parser.add_argument("dev", type=Path, help="the text to be told")
    parser.add_argument("--order", type=int, choices=range(1, 8), default=5, help="(default: %(default)s)")
    flags = parser.parse_args(arguments)
    try:
        checkpoint = load_checkpoint(flags.checkpoint)
        train, dev = (read_documents(path).documents for path in (flags.train, flags.dev))
    except (CheckpointError, DataError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    end = checkpoint.config.eos_id
    dev_ids = pack(dev, checkpoint.tokenizer)
    # Documents begin after an end token here as there.
    floor = KneserNey([end, *pack(train, checkpoint.tokenizer)], checkpoint.tokenizer.vocab_size, flags.order)
    print(f"{'model':<24}{'perplexity':>12}{'per word':>12}{'tokens':>10}{'words':>10}")
    _print(f"{flags.order}-gram, Kneser-Ney", perplexity(floor.log_probs([end, *dev_ids])[1:], dev))
    _print(str(checkpoint.metadata.get("name")), perplexity(token_log_probs(checkpoint, dev_ids), dev))
    return 0


def _print(name: str, result: Perplexity) -> None:
    per_token, per_word, num_tokens, num_words = result
    print(f"{name:<24}{per_token:>12.2f}{per_word:>12.2f}{num_tokens:>10}{num_words:>10}")


if __name__ == "__main__":
    sys.exit(main())
