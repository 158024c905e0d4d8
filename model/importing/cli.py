"""The command `python -m model import MODEL CHECKPOINT`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, get_args

from model.checkpoint import save_checkpoint
from model.importing.convert import import_checkpoint
from model.importing.hub import fetch, is_repository
from model.importing.options import ModelImportError
from model.importing.registry import FAMILIES
from model.pooling import Pooling


def add_import(commands: Any) -> None:
    """Add the command to the parser of `python -m model`."""
    summary = "make a checkpoint of a folder that transformers or sentence-transformers wrote"
    command = commands.add_parser(
        "import",
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}. Families: {', '.join(FAMILIES)}. See docs/import.md.",
    )
    command.add_argument(
        "model",
        metavar="MODEL",
        help="a folder with config.json, weights and tokenizer, or OWNER/NAME on the Hugging Face hub",
    )
    command.add_argument(
        "checkpoint", type=Path, nargs="?", metavar="CHECKPOINT", help="the folder to write (default: runs/NAME)"
    )
    command.add_argument("--name", help="the model's name in the checkpoint (default: that of MODEL)")
    command.add_argument("--revision", help="the branch, tag or commit to fetch (default: main)")
    command.add_argument(
        "--pooling",
        choices=get_args(Pooling),
        help="how token vectors become one (default: what FOLDER says, mean where it says nothing)",
    )
    for side in ("source", "target"):
        command.add_argument(
            f"--{side}-languages",
            type=lambda text: tuple(filter(None, text.split(","))),
            default=(),
            metavar="CODES",
            help=f"{side} languages of a translation model, such as en,de (default: all that its files name)",
        )
    command.add_argument("--force", action="store_true", help="replace the checkpoint if there is one")
    command.set_defaults(run=_import)


def _import(args: argparse.Namespace) -> None:
    folder, fetched = Path(args.model), None
    target = args.checkpoint or Path("runs") / (args.name or folder.resolve().name)
    _refuse_to_replace(target, args.force)
    if not folder.exists() and is_repository(args.model):
        fetched = fetch(args.model, args.revision)
        folder = fetched.folder
    elif args.revision:
        raise ModelImportError(f"--revision is for a model on the hub, {folder} is a folder")
    checkpoint = import_checkpoint(
        folder,
        args.name,
        args.pooling,
        report=lambda line: print(line, file=sys.stderr, flush=True),
        languages=(args.source_languages, args.target_languages),
    )
    config, metadata = checkpoint.config, checkpoint.metadata
    if fetched is not None:
        metadata["source"] |= {"repository": args.model, "commit": fetched.commit}
    save_checkpoint(checkpoint, target)
    print(
        f"wrote {target}: {metadata['name']} ({metadata['source']['model_type']}), "
        f"{checkpoint.model.num_parameters() / 1e6:.1f} M parameters, d_model {config.d_model}, "
        f"{config.num_encoder_layers or config.num_decoder_layers} layers, task {metadata['task']}"
    )


def _refuse_to_replace(target: Path, force: bool) -> None:
    if not target.exists():
        return
    if not force:
        raise ModelImportError(f"{target} exists already; give another folder, or --force to replace it")
    if not (target / "metadata.json").is_file():
        raise ModelImportError(f"{target} is not a checkpoint, so --force does not replace it")
