"""Random models of the measured shapes, as checkpoints and as bundles in fp16 and fp32, kept in the cache folder."""

from __future__ import annotations

import copy
import json
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from bench.gpu.device import DTYPES, PRECISIONS, torch_device
from bench.gpu.scale import Scale
from bench.models import LANGUAGES, checksum, export, fingerprint, num_special_tokens, random_model, word_tokenizer
from model.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from model.config import ModelConfig
from model.embedding import mean_pooled
from model.transformer import Transformer
from model.translation_format import OWN_FORMAT, BoundFormat

logger = logging.getLogger(__name__)

_TASKS = {"encoder_decoder": "translate", "encoder": "embed", "decoder": "generate"}
_SEED = 0


@dataclass(frozen=True)
class PreparedModel:
    """A model's checkpoint, which PyTorch computes with, and its bundle, which we serve. Weights are stored in fp16."""

    name: str
    checkpoint: Checkpoint
    bundle: Path

    @property
    def config(self) -> ModelConfig:
        return self.checkpoint.config

    def torch_model(self, precision: str, device: str) -> Transformer:
        """A copy of the model for PyTorch to run."""
        model = copy.deepcopy(self.checkpoint.model).to(torch_device(device), DTYPES[precision])
        return model.eval().requires_grad_(False)

    def random_ids(self, num_rows: int, num_tokens: int) -> NDArray[np.int64]:
        """(rows, tokens) of ordinary tokens; a source begins with a language and ends as texts do."""
        chance = np.random.default_rng(_SEED)
        ids = chance.integers(num_special_tokens(), self.config.vocab_size, (num_rows, num_tokens))
        if self.config.architecture == "encoder_decoder":
            bound = self._bound()
            ids = np.array([bound.source_ids(row[bound.num_source_tokens :]) for row in ids.tolist()])
        return ids

    def source_ids(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """Texts as an encoder that translates reads them."""
        return [self._bound().source_ids(row) for row in self.checkpoint.tokenizer.encode_batch(texts)]

    def _bound(self) -> BoundFormat:
        tokenizer = self.checkpoint.tokenizer
        return OWN_FORMAT.bind("en", "de", tokenizer, tokenizer)


def prepare_models(
    scale: Scale, names: Iterable[str], cache: Path, *, group_query: bool = False
) -> dict[str, PreparedModel]:
    """The models `names` of `scale`, made and exported where that was not done before; the largest takes minutes.

    With `group_query` their decoders in fp16 have ONNX Runtime's GroupQueryAttention.
    """
    prepared = {}
    for name in names:
        start = time.perf_counter()
        prepared[name] = _prepare(name, scale.models[name], cache, group_query=group_query)
        logger.info("%s: %.1f s to prepare", name, time.perf_counter() - start)
    return prepared


def _prepare(name: str, config: ModelConfig, cache: Path, *, group_query: bool) -> PreparedModel:
    folder = cache / f"{name}-{checksum(json.dumps([config.to_dict(), _SEED]), ())}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        model = random_model(config, _SEED) if config.architecture == "encoder_decoder" else _random(config)
        save_checkpoint(Checkpoint(model, word_tokenizer(config.vocab_size), _metadata(config), torch.float16), folder)
    has_group_query = group_query and config.architecture != "encoder"
    bundle = cache / f"{name}-{fingerprint(folder)}" / ("group-query" if has_group_query else "bundle")
    export(folder, bundle, name, PRECISIONS, ["--group-query"] if has_group_query else [])
    return PreparedModel(name, load_checkpoint(folder), bundle)


def _random(config: ModelConfig) -> Transformer:
    """Weights drawn at random; a decoder with tied embeddings is kept from saying one token for ever."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        model = Transformer(config).eval()
        if config.tied_embeddings and isinstance(model.decoder_norm, torch.nn.LayerNorm):
            with torch.no_grad():
                model.decoder_norm.weight.copy_(torch.randint(0, 2, (config.d_model,)) * 2 - 1)
    return model


def _metadata(config: ModelConfig) -> dict[str, object]:
    metadata: dict[str, object] = {"name": "random", "task": _TASKS[config.architecture]}
    if config.architecture == "encoder_decoder":
        metadata |= {"languages": list(LANGUAGES), "directions": [list(LANGUAGES), list(reversed(LANGUAGES))]}
    if config.architecture == "encoder":
        metadata["embedding"] = mean_pooled(config.max_seq_len)
    return metadata
