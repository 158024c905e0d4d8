"""The command `python -m model evaluate-alignment`: AER of every layer and head, beside the diagonal."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from model.alignment import SYMMETRIZATIONS
from model.alignment_evaluation import (
    AlignmentRecord,
    Setting,
    best_setting,
    evaluate_alignment,
    read_alignments,
)
from model.checkpoint import Checkpoint, load_checkpoint
from model.data import DataError

_METADATA = "metadata.json"


def add_evaluate_alignment(commands: Any, device: Callable[[str], torch.device]) -> None:
    """Add the command to the parser of `python -m model`; `device` makes one of the value of --device."""
    summary = "score each layer and head of a translation model as a word aligner, by AER"
    command = commands.add_parser(
        "evaluate-alignment",
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]} (alignment error rate, lower is better), beside a diagonal.",
    )
    command.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="its folder, such as runs/NAME/final")
    command.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        help="lines of sentence, sentence, links i-j, with tabs between and words at spaces; plain, .xz or .gz",
    )
    command.add_argument(
        "--columns", type=_languages, required=True, metavar="A,B", help="the languages of the columns, such as de,en"
    )
    command.add_argument("--json", type=Path, metavar="FILE", help="write the scores to FILE too")
    command.add_argument(
        "--save",
        action="store_true",
        help="write the best setting into the checkpoint's metadata, from where the export takes it",
    )
    command.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="(default: %(default)s)")
    command.set_defaults(run=lambda args: _run(args, device(args.device)))


def _languages(text: str) -> tuple[str, str]:
    codes = text.split(",")
    if len(codes) != 2 or not all(codes) or codes[0] == codes[1]:
        raise argparse.ArgumentTypeError(f"{text!r} is not two language codes with a comma between, such as de,en")
    return codes[0], codes[1]


def _run(args: argparse.Namespace, device: torch.device) -> None:
    checkpoint = load_checkpoint(args.checkpoint, device)
    console = Console(highlight=False, markup=False, soft_wrap=True)
    report = score_alignment(checkpoint, args.file, args.columns, console)
    if args.save:
        checkpoint.metadata["alignment"] = report["best"]
        path = args.checkpoint / _METADATA
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(checkpoint.metadata, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        partial.replace(path)
        console.print(f"{path} now names the best setting")
    if args.json:
        report = {"checkpoint": str(args.checkpoint), **report}
        args.json.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def score_alignment(checkpoint: Checkpoint, path: Path, languages: tuple[str, str], console: Console) -> dict[str, Any]:
    """Score all settings on a file, print them, and return them with the best, ready for the metadata.

    Raises CheckpointError for a checkpoint that cannot align these languages, DataError for the file.
    """
    file = read_alignments(path)
    records = evaluate_alignment(checkpoint, file.pairs, languages, console.print)
    methods = list(dict.fromkeys(record.method for record in records if record.setting is not None))
    directions = [method for method in methods if method not in SYMMETRIZATIONS]
    if not directions:
        raise DataError(f"{path}: nothing was aligned")
    setting, rate = best_setting(records, directions)
    _print(records, directions, console)
    console.print(f"best over {', '.join(directions)}: {_describe(setting)}, AER {rate:.3f}")
    for record in records:
        if record.setting == setting and record.method in SYMMETRIZATIONS:
            console.print(f"  {record.method:<22}{_figures(record)}")
    if file.num_left_out:
        console.print(f"{file.num_left_out} links of {path} lead beyond their sentences and were left out")
    best = {
        "layer": setting.layer,
        "head": setting.head,
        "shifted": setting.shifted,
        "aggregate": "mean" if setting.head is None else "none",
        "error_rate": round(rate, 4),
    }
    return {
        "file": path.name,
        "pairs": len(file.pairs),
        "links_left_out": file.num_left_out,
        "best": best,
        "scores": [_as_json(record) for record in records],
    }


def _print(records: Sequence[AlignmentRecord], directions: Sequence[str], console: Console) -> None:
    console.print(f"{'':<24}{'direction':<12}{'AER':>7}{'precision':>11}{'recall':>8}")
    for record in records:
        if record.setting is None:
            console.print(f"{'diagonal':<24}{'':<12}{_figures(record)}")
        elif record.method in directions:
            console.print(f"{_describe(record.setting):<24}{record.method:<12}{_figures(record)}")


def _describe(setting: Setting) -> str:
    head = "mean" if setting.head is None else f"head {setting.head}"
    return f"layer {setting.layer} {head}{' shifted' if setting.shifted else ''}"


def _figures(record: AlignmentRecord) -> str:
    score = record.score
    return f"{score.error_rate:>7.3f}{score.precision:>11.3f}{score.recall:>8.3f}"


def _as_json(record: AlignmentRecord) -> dict[str, Any]:
    setting = record.setting._asdict() if record.setting is not None else {}
    return {"method": record.method, **setting, **{k: round(v, 4) for k, v in record.score._asdict().items()}}
