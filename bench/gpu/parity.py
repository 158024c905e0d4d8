"""Every graph of the shipped bundles, and what becomes of whole texts: the device against the processor in float32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from bench.gpu.graphs import Array, OpenGraph, Outputs, run_attention, run_graphs
from bench.gpu.ours import Steps, TokenIds, writer
from bench.gpu.run import Run
from bench.models import SENTENCES
from bench.rounds import compare_tokens
from export.bundle import Bundle, load_bundle
from export.comparison import TOLERANCES, Differences, check_values
from model.tokenizer import Tokenizer
from service.runtime.graphs import open_session

_BEAMS = (1, 4)
_GRAPH_ROWS = 16
"""The first so many sentences are compared number by number, all of them token by token."""
_MAPS = 3
_ROWS = 64


class Variant(NamedTuple):
    """A precision and the options of the provider, under a name. What is `served` is compared in whole texts too."""

    name: str
    precision: str
    cuda: Mapping[str, str]
    served: bool = True


class Texts(NamedTuple):
    """Real sentences as a bundle reads them, and what it makes of them on the processor in float32."""

    sources: list[TokenIds]
    targets: list[list[int]]


def measure_parity(run: Run) -> None:
    """One row for each graph, kind of output and precision of each shipped bundle."""
    for path in run.bundles:
        bundle = load_bundle(path)
        texts = _texts(run, bundle)
        reference = _graphs(bundle, "fp32", partial(open_session, device="cpu", num_threads=1), texts)
        for variant in _variants(run):
            if run.record.is_late:
                run.record.leave_out(f"{bundle.name} in {variant.name}", "no time was left")
            elif variant.precision not in bundle.precisions:
                run.record.leave_out(f"{bundle.name} in {variant.name}", "the bundle lacks it")
            else:
                _compare_graphs(run, bundle, variant, texts, reference)
                if variant.served:
                    _compare_texts(run, bundle, variant, texts)


def _variants(run: Run) -> list[Variant]:
    """As served, which lets float32 products be TF32 on CUDA, and in full float32, which the bounds are for."""
    variants = [Variant(precision, precision, {}) for precision in run.precisions]
    if run.device == "cuda" and "fp32" in run.precisions:
        variants.append(Variant("fp32, no TF32", "fp32", {"use_tf32": "0"}, served=False))
    return variants


def _texts(run: Run, bundle: Bundle) -> Texts:
    lines = SENTENCES.read_text(encoding="utf-8").splitlines()[: run.scale.num_sentences]
    tokenizer, config = Tokenizer.load(bundle.tokenizer_path), bundle.config
    longest = min(run.scale.sentence_tokens, config.max_seq_len) - 2
    if config.architecture == "encoder":
        return Texts([tuple(row.ids[:longest]) for row in tokenizer.encodings(lines)], [[] for _ in lines])
    rows = [row[:longest] for row in tokenizer.encode_batch(lines)]
    if config.architecture == "decoder":
        shortest = min(len(row) for row in rows)
        sources = [tuple(row[:shortest]) for row in rows]
        return Texts(sources, _write(bundle, sources, run.scale.sentence_tokens))
    head = bundle.translate
    bound = head.format.bind(*head.languages.directions[0], tokenizer, tokenizer)
    sources = [bound.source_ids(row) for row in rows]
    return Texts(sources, _write(bundle, sources, run.scale.sentence_tokens))


def _write(bundle: Bundle, sources: Sequence[TokenIds], num_tokens: int) -> list[list[int]]:
    with writer(bundle, "fp32", "cpu", _ROWS) as write:
        return write(sources, 1, num_tokens)


def _graphs(bundle: Bundle, precision: str, open_graph: OpenGraph, texts: Texts) -> dict[str, Outputs]:
    found = run_graphs(bundle, precision, open_graph, texts.sources[:_GRAPH_ROWS], texts.targets[:_GRAPH_ROWS])
    if bundle.manifest.attention is not None and precision == "fp32":
        found["attention"] = run_attention(bundle, open_graph, texts.sources[:_MAPS], texts.targets[:_MAPS])
    return found


def _compare_graphs(run: Run, bundle: Bundle, variant: Variant, texts: Texts, reference: Mapping[str, Outputs]) -> None:
    open_graph = partial(open_session, device=run.device, num_threads=1, cuda=variant.cuda)
    for graph, outputs in _graphs(bundle, variant.precision, open_graph, texts).items():
        for what, names in _kinds(outputs).items():
            seen = Differences()
            for name in names:
                for expected, found in zip(reference[graph][name], outputs[name], strict=True):
                    seen.add(expected.astype(np.float64), found)
            check_values(seen, TOLERANCES[variant.precision])
            row: dict[str, Any] = {
                "bundle": bundle.name,
                "precision": variant.name,
                "what": f"{graph}: {what}",
                "largest_difference": seen.largest,
                "relative_error": seen.error,
                "verdict": "; ".join(seen.problems) or "kept",
            }
            if what == "logits":
                row["equal_tokens"] = seen.agreed / seen.positions
            if what == "embeddings":
                row["smallest_cosine"] = _smallest_cosine(reference[graph][what], outputs[what])
            run.record.add(row)


def _kinds(outputs: Outputs) -> dict[str, list[str]]:
    """Outputs of all layers together: `cross_key.0` and `cross_key.1` are one kind."""
    kinds: dict[str, list[str]] = {}
    for name in outputs:
        kinds.setdefault(name.split(".")[0], []).append(name)
    return kinds


def _smallest_cosine(expected: Sequence[Array], found: Sequence[Array]) -> float:
    left, right = (np.concatenate(list(arrays)).astype(np.float64) for arrays in (expected, found))
    norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    return float(((left * right).sum(1) / norms).min())


def _compare_texts(run: Run, bundle: Bundle, variant: Variant, texts: Texts) -> None:
    """Whole outputs, each side with its own engine; embeddings are compared above, since no engine changes them."""
    if bundle.config.architecture == "encoder":
        return
    observe = Steps().observer(run.device, cuda_graphs=run.cuda_graphs)
    beams = _BEAMS if bundle.config.architecture == "encoder_decoder" else _BEAMS[:1]
    with (
        writer(bundle, variant.precision, run.device, _ROWS, observe) as ours,
        writer(bundle, "fp32", "cpu", _ROWS) as theirs,
    ):
        for beam_size in beams:
            our, their = (side(texts.sources, beam_size, run.scale.sentence_tokens) for side in (ours, theirs))
            agreement = compare_tokens(our, their)
            run.record.add(
                {
                    "bundle": bundle.name,
                    "precision": variant.name,
                    "what": "greedy, whole" if beam_size == 1 else f"beam {beam_size}, whole",
                    "equal_tokens": agreement.equal_tokens,
                    "equal_sentences": agreement.equal_outputs,
                }
            )
