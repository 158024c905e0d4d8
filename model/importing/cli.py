"""The command `python -m model import FOLDER CHECKPOINT`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, get_args

from model.checkpoint import save_checkpoint
from model.importing.convert import import_checkpoint
from model.importing.errors import ModelImportError
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
        "folder", type=Path, metavar="FOLDER", help="has config.json, model.safetensors, tokenizer.json"
    )
    command.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="the folder to write")
    command.add_argument("--name", help="the model's name in the checkpoint (default: that of FOLDER)")
    command.add_argument(
        "--pooling",
        choices=get_args(Pooling),
        help="how token vectors become one (default: what FOLDER says, mean where it says nothing)",
    )
    command.add_argument("--force", action="store_true", help="replace the checkpoint if there is one")
    command.set_defaults(run=_import)


def _import(args: argparse.Namespace) -> None:
    if args.checkpoint.exists():
        if not args.force:
            raise ModelImportError(f"{args.checkpoint} exists already; give another folder, or --force to replace it")
        if not (args.checkpoint / "metadata.json").is_file():
            raise ModelImportError(f"{args.checkpoint} is not a checkpoint, so --force does not replace it")
    checkpoint = import_checkpoint(
        args.folder, args.name, args.pooling, report=lambda line: print(line, file=sys.stderr, flush=True)
    )
    save_checkpoint(checkpoint, args.checkpoint)
    config, metadata = checkpoint.config, checkpoint.metadata
    print(
        f"wrote {args.checkpoint}: {metadata['name']} ({metadata['source']['model_type']}), "
        f"{checkpoint.model.num_parameters() / 1e6:.1f} M parameters, d_model {config.d_model}, "
        f"{config.num_encoder_layers or config.num_decoder_layers} layers, task {metadata['task']}"
    )
