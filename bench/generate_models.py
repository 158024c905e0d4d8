"""What every side generates with: random decoders as transformers keeps them, and in the form that each side loads."""

from __future__ import annotations

import importlib.util
import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from tokenizers import models, pre_tokenizers

from bench.models import CACHE, PRECISIONS, ROOT, checksum, convert_library_model, export, run_tool, word
from bench.side import BenchError
from model.checkpoint import save_checkpoint
from model.importing.convert import import_checkpoint

logger = logging.getLogger(__name__)

SHAPES = ("gpt2", "llama")

GENAI_PRECISIONS = ("fp32", "int4")
OUR_PRECISIONS = (*PRECISIONS, "int4")
"""CTranslate2 has no int4 for processors, so ours stands beside onnxruntime-genai's."""

_END = "<|endoftext|>"
_END_ID = 0
_END_SCALE = 1e-3
"""What the end token's embedding is scaled by: its logit is near 0, below the best of all the others."""

_LIVELINESS = 2.0
"""What the weights of the layers are scaled by, so that a text depends on more than its last token."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a random decoder. `num_kv_heads` and `d_ff` are for Llama; GPT-2 follows from the others."""

    family: str
    num_layers: int = 12
    d_model: int = 768
    num_heads: int = 12
    num_kv_heads: int = 4
    d_ff: int = 2048
    vocab_size: int = 50_257
    max_tokens: int = 1024


@dataclass(frozen=True)
class PreparedDecoder:
    """One model in all its forms."""

    shape: Shape
    folder: Path
    """As transformers reads it."""
    bundle: Path
    ctranslate2: Path

    @property
    def name(self) -> str:
        return self.shape.family

    def genai(self, precision: str) -> Path:
        """Where onnxruntime-genai has the model, which `build_genai` makes."""
        return self.ctranslate2.parent / f"genai-{precision}"


def prepare_decoder(shape: Shape, cache: Path = CACHE) -> PreparedDecoder:
    """A random model of `shape`, in the forms that are missing still.

    They are kept under a checksum of the shape and of the sources that make them, so none is ever out of date.
    """
    makers = [Path(__file__), *ROOT.glob("export/*.py"), *ROOT.glob("model/*.py"), *ROOT.glob("model/importing/*.py")]
    place = cache / f"random-{shape.family}-{checksum(repr(shape), sorted(makers))}"
    prepared = PreparedDecoder(shape, place / "transformers", place / "bundle", place / "ctranslate2")
    if not (prepared.folder / "tokenizer.json").is_file():
        logger.info("drawing the weights of a random %s", shape.family)
        random_decoder(shape).save_pretrained(prepared.folder)
        word_tokenizer(shape.vocab_size).save_pretrained(prepared.folder)
    if not (prepared.bundle / "manifest.json").is_file():
        checkpoint = place / "checkpoint"
        save_checkpoint(import_checkpoint(prepared.folder, name=prepared.name), checkpoint)
        export(checkpoint, prepared.bundle, prepared.name, OUR_PRECISIONS)
    convert_library_model(prepared.folder, prepared.ctranslate2)
    return prepared


def random_decoder(shape: Shape, seed: int = 0) -> Any:
    """A model of transformers that writes varied text without an end: a fresh one tends to repeat itself.

    Half of the channels before the projection change their sign, so that with tied embeddings a token is not likeliest
    after itself, and the layers count for more beside the token's own embedding.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if shape.family == "gpt2":
            model: Any = transformers.GPT2LMHeadModel(_gpt2_config(shape))
            layers, norm = model.transformer.h, model.transformer.ln_f
        elif shape.family == "llama":
            model = transformers.LlamaForCausalLM(_llama_config(shape))
            layers, norm = model.model.layers, model.model.norm
        else:
            raise BenchError(f"the family is {shape.family!r}, allowed: {', '.join(SHAPES)}")
        with torch.no_grad():
            for parameter in layers.parameters():
                if parameter.dim() == 2:
                    parameter.mul_(_LIVELINESS)
            norm.weight.copy_(torch.randint(0, 2, (shape.d_model,)) * 2 - 1)
            model.get_input_embeddings().weight[_END_ID].mul_(_END_SCALE)
    return model.eval()


def _gpt2_config(shape: Shape) -> Any:
    return transformers.GPT2Config(
        vocab_size=shape.vocab_size,
        n_positions=shape.max_tokens,
        n_embd=shape.d_model,
        n_layer=shape.num_layers,
        n_head=shape.num_heads,
        bos_token_id=_END_ID,
        eos_token_id=_END_ID,
    )


def _llama_config(shape: Shape) -> Any:
    return transformers.LlamaConfig(
        vocab_size=shape.vocab_size,
        hidden_size=shape.d_model,
        intermediate_size=shape.d_ff,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=shape.num_heads,
        num_key_value_heads=shape.num_kv_heads,
        max_position_embeddings=shape.max_tokens,
        tie_word_embeddings=True,
        bos_token_id=_END_ID,
        eos_token_id=_END_ID,
        pad_token_id=_END_ID,
    )


def word_tokenizer(vocab_size: int) -> Any:
    """A tokenizer of transformers whose tokens are the end and made-up words of four letters."""
    vocabulary = {spelling(token_id): token_id for token_id in range(vocab_size)}
    backend = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=_END))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    wrap: Any = transformers.PreTrainedTokenizerFast
    return wrap(tokenizer_object=backend, bos_token=_END, eos_token=_END, unk_token=_END)


def spelling(token_id: int) -> str:
    """The text of a token, which is what CTranslate2 takes."""
    return _END if token_id == _END_ID else word(token_id)


def build_genai(prepared: PreparedDecoder, precision: str) -> Path | None:
    """The model as onnxruntime-genai's own builder makes it, made when missing; None where it is not installed."""
    if importlib.util.find_spec("onnxruntime_genai") is None:
        return None
    place = prepared.genai(precision)
    if not (place / "genai_config.json").is_file():
        logger.info("building %s in %s for onnxruntime-genai", prepared.name, precision)
        command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", str(prepared.folder)]
        run_tool([*command, "-o", str(place), "-p", precision, "-e", "cpu", "-c", str(place / "cache")])
    return place
