"""What `python -m model evaluate` prints: a table of scores of a checkpoint on files, by its task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from model.checkpoint import Checkpoint, CheckpointError
from model.data import read_documents, read_pairs
from model.embedding_evaluation import evaluate_embeddings, read_embedding_test
from model.evaluation import Evaluation, evaluate_pairs
from model.perplexity import evaluate_text


class SearchOptions(NamedTuple):
    """How translations are searched, and how many of each set are printed."""

    beam_size: int = 1
    length_penalty: float = 1.0
    num_shown: int = 0


def score_files(
    checkpoint: Checkpoint, paths: Sequence[Path], options: SearchOptions, console: Console
) -> dict[str, Any]:
    """Score a checkpoint on each file and print a line for each score; returns them all.

    CheckpointError where there is no measure for the checkpoint's task, DataError for a file.
    """
    task = checkpoint.metadata.get("task")
    if task not in _BY_TASK:
        raise CheckpointError(f"the checkpoint's task is {task!r}, there are measures for: {', '.join(_BY_TASK)}")
    return _BY_TASK[task](checkpoint, paths, options, console)


def _translate(
    checkpoint: Checkpoint, paths: Sequence[Path], options: SearchOptions, console: Console
) -> dict[str, Any]:
    console.print("whole files; training scores max_pairs of each, greedily")
    console.print(f"{'set':<24}{'direction':<12}{'BLEU':>8}{'chrF':>8}{'pairs':>8}  numbers and dates kept")
    records = []
    signature = ""
    for path in paths:
        pairs = read_pairs(path).pairs
        for result in evaluate_pairs(checkpoint, pairs, options.beam_size, options.length_penalty):
            record = _record(_name(path), result)
            row = "{set:<24}{direction:<12}{bleu:>8.2f}{chrf:>8.2f}{pairs:>8}".format(**record)
            numbers = result.numbers
            console.print(f"{row}  {numbers.share:.1%} of {numbers.pairs}" if numbers and numbers.pairs else row)
            for source, hypothesis in list(zip(result.sources, result.hypotheses, strict=True))[: options.num_shown]:
                console.print(f"  {source}\n  -> {hypothesis}")
            records.append(record)
            signature = result.score.signature
    console.print(f"beam {options.beam_size}, length penalty {options.length_penalty:g}, sacrebleu {signature}")
    settings = {"beam_size": options.beam_size, "length_penalty": options.length_penalty, "signature": signature}
    return {**settings, "scores": records}


def _record(name: str, result: Evaluation) -> dict[str, Any]:
    return {
        "set": name,
        "direction": f"{result.source_language}-{result.target_language}",
        "bleu": round(result.score.bleu, 2),
        "chrf": round(result.score.chrf, 2),
        "pairs": len(result.sources),
        "numbers": result.numbers._asdict() if result.numbers else None,
    }


def _embed(checkpoint: Checkpoint, paths: Sequence[Path], options: SearchOptions, console: Console) -> dict[str, Any]:
    console.print(f"{'set':<24}{'direction':<12}{'measure':<12}{'value':>8}{'pairs':>8}")
    records = []
    for path in paths:
        file = read_embedding_test(path)
        for direction, measure, value in evaluate_embeddings(checkpoint, file):
            record: dict[str, Any] = {"set": _name(path), "direction": direction, "measure": measure}
            record |= {"value": round(value, 4), "pairs": len(file.pairs)}
            console.print("{set:<24}{direction:<12}{measure:<12}{value:>8.4f}{pairs:>8}".format(**record))
            records.append(record)
    return {"scores": records}


def _generate(
    checkpoint: Checkpoint, paths: Sequence[Path], options: SearchOptions, console: Console
) -> dict[str, Any]:
    console.print(f"{'set':<24}{'perplexity':>12}{'per word':>12}{'tokens':>10}{'words':>10}")
    records = []
    for path in paths:
        record = {"set": _name(path), **evaluate_text(checkpoint, read_documents(path).documents)._asdict()}
        row = "{set:<24}{per_token:>12.2f}{per_word:>12.2f}{num_tokens:>10}{num_words:>10}"
        console.print(row.format(**record))
        records.append(record)
    return {"scores": records}


def _name(path: Path) -> str:
    return path.name.split(".")[0]


_Score = Callable[[Checkpoint, Sequence[Path], SearchOptions, Console], dict[str, Any]]
_BY_TASK: dict[str, _Score] = {"translate": _translate, "embed": _embed, "generate": _generate}
