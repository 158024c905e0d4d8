"""Parity: does a decoder compute what the PyTorch model does? Names first, then shapes, then values, then sentences.

Both sides run the same ragged batches: rows of different source lengths, a prefill whose rows have different numbers of
tokens, then steps in which rows stand at different positions. Then whole sentences are decoded greedily and compared
with the slow decoder of `model.reference`. Every failure is collected before a precision is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from export.comparison import TOLERANCES, Differences, ParityError, check_values, interface_problems, rounded
from export.graphs import GraphDefinition, graph_definitions
from export.manifest import ParityReport, PrecisionSpec, TensorSpec
from export.session import Array, GraphSession
from model.reference import greedy
from model.transformer import Transformer

SOURCE_LENGTHS = ((5,), (1, 7, 4), (9, 2, 6, 3))
"""The ragged batches: the number of source tokens of each row. Rows of the target have other lengths, see `_cases`."""

NUM_STEPS = 4
NUM_SENTENCES = 6
MAX_NEW_TOKENS = 24


@dataclass
class _Case:
    """One ragged batch: source rows, the tokens of the prefill, how many of each are real, and the cache's capacity."""

    source_ids: Array
    source_lengths: Array
    prompt_ids: Array
    prompt_lengths: Array
    capacity: int


def check_parity(
    model: Transformer,
    folder: Path,
    name: str,
    precision: PrecisionSpec,
    num_candidates: int,
    suppressed: Sequence[int] = (),
) -> ParityReport:
    """Compare the graphs of one precision in `folder` with `model` (float32); neither ranks what is in `suppressed`.

    Raises ParityError with everything that is out of tolerance.
    """
    sessions = {key: GraphSession(folder / spec.file, spec) for key, spec in precision.graphs.items()}
    problems = [problem for key, session in sessions.items() for problem in interface_problems(key, session)]
    if problems:
        raise ParityError(f"precision {name}: {'; '.join(problems)}")
    definitions = {graph.name: graph for graph in graph_definitions(model, "float32", suppressed=suppressed)}
    tolerance, seen = TOLERANCES[name], Differences()
    for case in _cases(model):
        _compare(definitions, sessions, case, num_candidates, suppressed, seen)
    check_values(seen, tolerance)
    agreed = sum(_same_sentence(model, sessions, case, suppressed) for case in _sentences(model))
    if name == "fp32" and agreed < NUM_SENTENCES:
        seen.problems.append(f"{NUM_SENTENCES - agreed} of {NUM_SENTENCES} decoded sentences differ")
    if seen.problems:
        raise ParityError(f"precision {name} differs too much from the PyTorch model: {'; '.join(seen.problems)}")
    return ParityReport(
        status="passed",
        largest_difference=rounded(seen.largest),
        relative_error=rounded(seen.error),
        relative_error_tolerance=tolerance.error,
        token_agreement=rounded(seen.agreed / seen.positions),
        sentence_agreement=rounded(agreed / NUM_SENTENCES),
        num_positions=seen.positions,
        num_sentences=NUM_SENTENCES,
    )


def _cases(model: Transformer) -> Iterator[_Case]:
    config, random = model.config, np.random.default_rng(0)
    for lengths in SOURCE_LENGTHS:
        num_rows, longest = len(lengths), min(max(lengths), config.max_seq_len)
        prompts = np.array([1 + (3 * row + num_rows) % 4 for row in range(num_rows)])
        capacity = int(prompts.max()) + NUM_STEPS
        prompts = np.minimum(prompts, max(1, config.max_seq_len - NUM_STEPS))
        yield _Case(
            random.integers(0, config.num_source_tokens, (num_rows, longest)),
            np.minimum(lengths, longest),
            random.integers(0, config.vocab_size, (num_rows, int(prompts.max()))),
            prompts,
            min(capacity, config.max_seq_len),
        )


def _compare(
    definitions: dict[str, GraphDefinition],
    sessions: dict[str, GraphSession],
    case: _Case,
    num_candidates: int,
    suppressed: Sequence[int],
    seen: Differences,
) -> None:
    """Prefill, read after every token, then steps along the best tokens of the PyTorch model; the caches are apart."""
    expected_state, found_state = (
        {tensor.name: _zeros(tensor, case) for tensor in inputs if "_cache." in tensor.name}
        for inputs in (definitions["decoder"].inputs, sessions["decoder"].spec.inputs)
    )
    if "encoder" in definitions:
        source = {"input_ids": case.source_ids, "lengths": case.source_lengths}
        expected_state |= _run_torch(definitions["encoder"], source) | {"source_lengths": case.source_lengths}
        found_state |= sessions["encoder"].run(source) | {"source_lengths": case.source_lengths}
    ids, counts = case.prompt_ids, case.prompt_lengths
    written = np.zeros_like(counts)
    for _ in range(1 + NUM_STEPS):
        real = np.arange(ids.shape[1]) < counts[:, None]
        step = {"input_ids": ids, "write_indices": written, "read_indices": np.flatnonzero(real)}
        step["num_candidates"] = np.array([num_candidates])
        expected = _run_torch(definitions["decoder"], expected_state | step)
        found = sessions["decoder"].run(found_state | step)
        seen.add(expected["logits"], found["logits"])
        _check_candidates(found, suppressed, seen)
        ids, written = expected["candidate_ids"][np.cumsum(counts) - 1, :1], written + counts
        counts = np.ones_like(counts)


def _check_candidates(found: dict[str, Array], suppressed: Sequence[int], seen: Differences) -> None:
    """The candidates must be the best of the log-softmax of the logits beside them, best first."""
    logits = found["logits"].astype(np.float64)
    logits[:, list(suppressed)] = -np.inf
    log_probs = (
        logits
        - np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1, keepdims=True))
        - logits.max(-1, keepdims=True)
    )
    chosen = np.take_along_axis(log_probs, found["candidate_ids"], axis=-1)
    best = np.sort(log_probs, axis=-1)[:, ::-1][:, : chosen.shape[1]]
    worst = max(np.abs(chosen - best).max(), np.abs(found["candidate_log_probs"] - best).max())
    if not worst <= 1e-3:
        seen.problems.append(f"candidates are not the best tokens of the logits: they differ by {worst:.3g}")


def _run_torch(definition: GraphDefinition, inputs: dict[str, Array]) -> dict[str, Array]:
    """Run the module of `definition` in PyTorch; caches in `inputs` are replaced, as the graph does in place."""
    with torch.inference_mode():
        tensors = [torch.from_numpy(np.ascontiguousarray(inputs[spec.name])) for spec in definition.inputs]
        results = definition.module.eval()(*tensors)
    outputs = {spec.name: tensor.numpy() for spec, tensor in zip(definition.outputs, results, strict=True)}
    for name in [name for name in outputs if name.startswith("new_")]:
        inputs[name.removeprefix("new_")][...] = outputs.pop(name)
    return outputs


def _zeros(spec: TensorSpec, case: _Case) -> Array:
    sizes = {"batch": len(case.prompt_lengths), "capacity": case.capacity, "source": case.source_ids.shape[1]}
    return np.zeros([sizes[size] if isinstance(size, str) else size for size in spec.shape], spec.dtype)


def _sentences(model: Transformer) -> Iterator[_Case]:
    """Single rows of random sources, to be decoded to their end."""
    config, random = model.config, np.random.default_rng(1)
    for length in random.integers(1, min(12, config.max_seq_len) + 1, NUM_SENTENCES):
        yield _Case(
            random.integers(3, config.num_source_tokens, (1, length)),
            np.array([length]),
            np.array([[config.bos_id]]),
            np.array([1]),
            min(MAX_NEW_TOKENS + 1, config.max_seq_len),
        )


def _same_sentence(
    model: Transformer, sessions: dict[str, GraphSession], case: _Case, suppressed: Sequence[int]
) -> bool:
    source = case.source_ids[0].tolist() if "encoder" in sessions else None
    limit = case.capacity - 1
    return greedy(model, source, limit, suppressed=suppressed) == _greedy(model.config.eos_id, sessions, case, limit)


def _greedy(eos_id: int, sessions: dict[str, GraphSession], case: _Case, limit: int) -> list[int]:
    """Greedy decoding on ONNX Runtime."""
    state = {spec.name: _zeros(spec, case) for spec in sessions["decoder"].spec.inputs if "_cache." in spec.name}
    if "encoder" in sessions:
        state |= sessions["encoder"].run({"input_ids": case.source_ids, "lengths": case.source_lengths})
        state["source_lengths"] = case.source_lengths
    ids, tokens = case.prompt_ids, list[int]()
    for position in range(limit):
        step = {"input_ids": ids, "write_indices": np.array([position]), "read_indices": np.array([0])}
        step["num_candidates"] = np.array([1])
        ids = sessions["decoder"].run(state | step)["candidate_ids"]
        if ids[0, 0] == eos_id:
            break
        tokens.append(int(ids[0, 0]))
    return tokens
