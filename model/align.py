"""`python -m model align`: which words of training pairs belong together, for guided alignment.

The aligner is eflomal (Ostling and Tiedemann 2016, https://ufal.mff.cuni.cz/pbml/106/art-ostling-tiedemann.pdf), a
program of its own (`pip install eflomal`) that runs both ways over all files together.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from model.alignment import from_pharaoh, grow_diag_final_and, to_pharaoh
from model.config import ConfigError
from model.data import DataError
from model.tokenizer import Tokenizer
from model.training.config import TrainingConfig, load_training_config
from model.training.data import read_pair_source
from model.training.subwords import encode_words

_PROGRAM = "eflomal-align"


def align(config: TrainingConfig, root: Path, tokenizer: Tokenizer, report: Callable[[str], None]) -> None:
    """Write a file of links beside each training file that names one, as long as the file has pairs.

    Links are between words as the tokenizer sees them, symmetrised by grow-diag-final-and. ConfigError where no file
    names `links`, DataError where the aligner is missing or fails.
    """
    sources = [source for source in config.data.train if source.links]
    if not sources:
        raise ConfigError("no file of data.train names its links")
    files = [read_pair_source(source, root, config.data.languages, report) for source in sources]
    pairs = [pair for file in files for pair in file.pairs]
    sides = [_word_lines([pair[side] for pair in pairs], tokenizer) for side in (0, 1)]
    links = iter(align_words(*sides))
    for source, file in zip(sources, files, strict=True):
        path = root / source.links
        path.write_text("".join(f"{line}\n" for line in islice(links, len(file.pairs))), encoding="utf-8")
        report(f"wrote {path}: {len(file.pairs)} lines")


def _word_lines(texts: list[str], tokenizer: Tokenizer) -> list[str]:
    """The words of each text with spaces between, in lower case, which is enough to align by."""
    lines = []
    for words in encode_words(tokenizer, texts):
        spelled = ("".join(map(tokenizer.token, word)).strip("▁").lower() for word in words)
        lines.append(" ".join(word or "▁" for word in spelled))
    return lines


def align_words(first: Sequence[str], second: Sequence[str]) -> list[str]:
    """Links "i-j i-j" of the words of each pair of lines, which spaces separate."""
    program = shutil.which(_PROGRAM) or shutil.which(_PROGRAM, path=str(Path(sys.executable).parent))
    if program is None:
        raise DataError(f"there is no program {_PROGRAM}: pip install eflomal, or put it on the PATH")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for side, lines in (("first", first), ("second", second)):
            (folder / side).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        command = [program, "-s", "first", "-t", "second", "-f", "forward", "-r", "backward", "--overwrite"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise DataError(f"{_PROGRAM} failed with status {done.returncode}: {done.stderr.strip()[-500:]}")
        ways = [(folder / way).read_text(encoding="utf-8").splitlines() for way in ("forward", "backward")]
    if {len(way) for way in ways} != {len(first)}:
        raise DataError(f"{_PROGRAM} gave {[len(way) for way in ways]} lines for {len(first)} pairs")
    return [to_pharaoh(grow_diag_final_and(*map(from_pharaoh, lines))) for lines in zip(*ways, strict=True)]


def add_align(commands: Any) -> None:
    """Add the command to the parser of `python -m model`."""
    summary = "align the words of training pairs with eflomal, for objective.guided_alignment"
    command = commands.add_parser("align", help=summary, description=summary[0].upper() + summary[1:] + ".")
    command.add_argument("config", type=Path, metavar="CONFIG.toml", help="names the files, and the links to write")
    command.add_argument("--data", type=Path, metavar="FOLDER", required=True, help="where its paths start")
    command.add_argument("--tokenizer", type=Path, metavar="FILE", required=True, help="the run's tokenizer.json")
    command.set_defaults(run=_align)


def _align(args: argparse.Namespace) -> None:
    config = load_training_config(args.config)
    align(config, args.data, Tokenizer.load(args.tokenizer), lambda text: print(text, file=sys.stderr))
