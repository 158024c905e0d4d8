"""What both sides run: one checkpoint, as a bundle of ours and as a model of the peer's, kept in a cache folder."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase

import ctranslate2
import tokenizers
import torch
from tokenizers import models, pre_tokenizers

from bench.peers.ctranslate2_converter import convert
from bench.side import BenchError
from model.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from model.config import ModelConfig
from model.tokenizer import SPECIAL_TOKENS, Tokenizer, language_tag
from model.transformer import Transformer

logger = logging.getLogger(__name__)

ROOT = Path(__file__).parent.parent
CACHE = ROOT / "bench" / ".cache"
SENTENCES = ROOT / "bench" / "sentences.en.txt"

PRECISIONS = ("fp32", "int8")

RANDOM = ModelConfig(
    architecture="encoder_decoder",
    vocab_size=16_000,
    d_model=512,
    d_ff=2048,
    num_heads=8,
    num_encoder_layers=6,
    num_decoder_layers=6,
    max_seq_len=256,
    dropout=0.0,
)
"""The base model of Vaswani et al. 2017 with a vocabulary usual for one pair of languages."""

LANGUAGES = ("en", "de")

_NEVER = -1e4
"""A bias that keeps a token out of every output, and is still a number in half precision."""

_END_BIAS, _END_STRENGTH = 1.0, 3.0
"""What the end token's logit starts from, and how strongly position and chance move it; the best logit is near 4."""

_FASTEST, _SLOWEST = 30, 150
"""Sines of these periods over 2 pi, in tokens, rise over the length of a sentence."""


@dataclass(frozen=True)
class Prepared:
    """One model in both forms, and the checkpoint that both were made from."""

    name: str
    checkpoint: Checkpoint
    bundle: Path
    peer: Path
    is_trained: bool


def prepare(checkpoint_folder: Path | None, writes_ends: bool = False, cache: Path = CACHE) -> Prepared:
    """The model of `checkpoint_folder`, or a random one, in both forms, which are made when they are missing.

    They are kept under a checksum of the weights and of the sources that make them, so neither is ever out of date.
    """
    folder = checkpoint_folder or random_checkpoint(cache, writes_ends=writes_ends)
    checkpoint = load_checkpoint(folder)
    name = "random" if checkpoint_folder is None else str(checkpoint.metadata.get("name", folder.name))
    place = cache / f"{name}-{fingerprint(folder)}"
    bundle, peer = place / "bundle", place / "ctranslate2"
    export(folder, bundle, name)
    if not (peer / "model.bin").is_file():
        logger.info("converting %s for CTranslate2", folder)
        convert(checkpoint.model, peer)
    return Prepared(name, checkpoint, bundle, peer, checkpoint_folder is not None)


def random_checkpoint(
    cache: Path = CACHE, config: ModelConfig = RANDOM, seed: int = 0, writes_ends: bool = False
) -> Path:
    """A checkpoint with weights drawn at random, see `random_model`; returns its folder."""
    identity = json.dumps([config.to_dict(), seed, writes_ends, _END_BIAS, _END_STRENGTH])
    folder = cache / f"random-checkpoint-{checksum(identity, ())}"
    if not folder.exists():
        metadata = {
            "name": "random",
            "task": "translate",
            "languages": list(LANGUAGES),
            "directions": [list(LANGUAGES), list(reversed(LANGUAGES))],
        }
        folder.parent.mkdir(parents=True, exist_ok=True)
        model = random_model(config, seed, writes_ends)
        save_checkpoint(Checkpoint(model, word_tokenizer(config.vocab_size), metadata), folder)
    return folder


def random_model(config: ModelConfig, seed: int, writes_ends: bool = False) -> Transformer:
    """A transformer that writes varied text: a fresh one with tied embeddings says one token for ever.

    Its outputs never end by themselves, or with `writes_ends` end by chance, so that their lengths are mixed.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Transformer(config).eval()
        with torch.no_grad():
            # Each channel keeps or changes its sign before the projection, so a token is not likeliest after itself.
            if isinstance(model.decoder_norm, torch.nn.LayerNorm):
                signs = torch.randint(0, 2, (config.d_model,)) * 2 - 1
                model.decoder_norm.weight.copy_(signs)
            model.final_bias[: num_special_tokens()] = _NEVER
            if writes_ends:
                _end_by_position(model)
    return model


def _end_by_position(model: Transformer) -> None:
    """Make the end token likelier with every position, by chance sooner or later: lengths are spread as those of texts.

    The token's embedding looks at the channels of the position table that rise over a sentence's length.
    """
    config = model.config
    rates = torch.exp(torch.arange(0, config.d_model, 2) * (-math.log(10_000.0) / config.d_model))
    rising = torch.zeros(config.d_model)
    rising[0::2] = ((rates > 1 / _SLOWEST) & (rates < 1 / _FASTEST)).float()  # even channels hold sines
    direction = rising * model.get_parameter("decoder_norm.weight")
    model.embedding.token.weight[config.eos_id] = _END_STRENGTH * direction / direction.norm()
    model.final_bias[config.eos_id] = _END_BIAS


def word_tokenizer(vocab_size: int) -> Tokenizer:
    """A tokenizer whose tokens are made-up words of four letters, so that a text's length in tokens is known."""
    tokens = [*SPECIAL_TOKENS, *map(language_tag, LANGUAGES)]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    for index in range(len(tokens), vocab_size):
        vocabulary[word(index)] = index
    backend = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIAL_TOKENS[3]))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.add_special_tokens(tokens)
    return Tokenizer(backend)


def word(index: int) -> str:
    """Four letters for a number below 26**4, each number its own."""
    letters = ""
    for _ in range(4):
        index, letter = divmod(index, len(ascii_lowercase))
        letters = ascii_lowercase[letter] + letters
    return letters


def num_special_tokens() -> int:
    """Special tokens and language tags: ids below this are no words."""
    return len(SPECIAL_TOKENS) + len(LANGUAGES)


def fingerprint(folder: Path) -> str:
    """A checksum of a checkpoint and of the sources that export and convert it."""
    files = [folder / name for name in ("config.json", "model.safetensors", "tokenizer.json")]
    makers = [*ROOT.glob("export/*.py"), *ROOT.glob("export/*.txt"), *ROOT.glob("bench/peers/*converter.py")]
    return checksum("", [*files, *sorted(makers)])


def checksum(identity: str, files: Iterable[Path]) -> str:
    """Twelve digits for a text and the contents of files."""
    digest = hashlib.sha256(identity.encode())
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def export(
    checkpoint: Path, bundle: Path, name: str, precisions: Sequence[str] = PRECISIONS, flags: Sequence[str] = ()
) -> None:
    """Make the bundle of a checkpoint in all precisions that are compared, where it is missing."""
    if (bundle / "manifest.json").is_file():
        return
    logger.info("exporting %s", checkpoint)
    command = [sys.executable, "-m", "export", str(checkpoint), str(bundle), "--name", name, "--force", *flags]
    for precision in precisions:
        command += ["--precision", precision]
    run_tool(command)


def convert_library_model(folder: Path, peer: Path) -> None:
    """Make CTranslate2's model of one that transformers knows, where it is missing."""
    if not (peer / "model.bin").is_file():
        logger.info("converting %s for CTranslate2", folder)
        ctranslate2.converters.TransformersConverter(str(folder)).convert(str(peer), force=True)


def run_tool(command: Sequence[str]) -> None:
    """Run a command in a process of its own; BenchError with the end of what it said where it fails."""
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    if done.returncode:
        raise BenchError(f"{' '.join(command)} failed:\n{done.stderr.strip()[-2000:]}")
