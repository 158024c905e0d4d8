"""Which inputs run together: pure functions over their lengths, in tokens.

A batch computes longest length x count tokens, and costs as much as `overhead_tokens` more, however small it is.
"""

from __future__ import annotations

from collections.abc import Sequence


def cut_batches(lengths: Sequence[int], max_tokens: int, overhead_tokens: int) -> list[range]:
    """Cut `lengths`, in ascending order, into batches of adjacent ones, each as a range of indices.

    A batch ends where the padding that the next input would bring to those before it costs more than a batch of its
    own. Longest x count is at most `max_tokens`, unless one input is alone longer than that.
    """
    if not lengths:
        return []
    starts: list[int] = []
    longest = 0
    for index, length in enumerate(lengths):
        count = index - starts[-1] if starts else 0
        if not starts or length * (count + 1) > max_tokens or (length - longest) * count > overhead_tokens:
            starts.append(index)
        longest = length
    return [range(start, end) for start, end in zip(starts, [*starts[1:], len(lengths)], strict=True)]


def choose_batch(lengths: Sequence[int], max_tokens: int, overhead_tokens: int) -> list[int]:
    """The next batch, as indices into `lengths`, which are those of the waiting inputs in order of arrival.

    It always holds the oldest, index 0, so that none starves, and then those inputs of like length that maximise its
    efficiency: real tokens for each token of cost, longest x count + `overhead_tokens`. With a small overhead only
    inputs of nearly one length run together; with a large one, as on a GPU, all that wait. Of equal lengths the older
    is taken first.

    Longest x count is at most `max_tokens`, unless the oldest is alone longer than that.
    """
    oldest = lengths[0]
    rest = sorted(range(1, len(lengths)), key=lengths.__getitem__)  # stable, so by age among equals
    longer = [index for index in rest if lengths[index] >= oldest]
    shorter = sorted((index for index in rest if lengths[index] < oldest), key=lambda index: -lengths[index])
    chosen, best_count = [0], 1
    longest = real = oldest
    best_real, best_cost = real, overhead_tokens + longest
    num_longer = num_shorter = 0
    while True:
        count = len(chosen) + 1
        options = []  # each as (index, real tokens, longest)
        if num_longer < len(longer):
            length = lengths[longer[num_longer]]
            options.append((longer[num_longer], real + length, length))
        if num_shorter < len(shorter):
            options.append((shorter[num_shorter], real + lengths[shorter[num_shorter]], longest))
        options = [option for option in options if option[2] * count <= max_tokens]
        if not options:
            return sorted(chosen[:best_count])
        index, real, longest = max(options, key=lambda option: option[1] / (overhead_tokens + option[2] * count))
        num_longer += lengths[index] >= oldest
        num_shorter += lengths[index] < oldest
        chosen.append(index)
        cost = overhead_tokens + longest * count
        if real * best_cost >= best_real * cost:
            best_count, best_real, best_cost = count, real, cost
