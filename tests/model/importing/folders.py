"""Folders as transformers and sentence-transformers write them, of tiny random models."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import models, normalizers, pre_tokenizers, processors
from torch import Tensor
from transformers import PreTrainedModel

VOCAB_SIZE = 60
WORDS = ["the", "dog", "cat", "sleeps", "eats", "house", "tree", "small", "big", "##s", "##ing", "##er", "is", "not"]
SIZES = {"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2, "num_hidden_layers": 2}
DISTILBERT_SIZES = {"dim": 16, "hidden_dim": 24, "n_heads": 2, "n_layers": 2}


def make_theirs(model_type: str, head: str = "Model", seed: int = 0, **options: Any) -> PreTrainedModel:
    """A random model; biases and norms are drawn too, so that none can be mixed up unseen."""
    kinds = {"bert": "Bert", "distilbert": "DistilBert", "roberta": "Roberta"}
    kinds |= {"xlm-roberta": "XLMRoberta", "camembert": "Camembert"}
    sizes = DISTILBERT_SIZES if model_type == "distilbert" else SIZES
    values = {"vocab_size": VOCAB_SIZE, "max_position_embeddings": 24, **sizes, **options}
    torch.manual_seed(seed)
    config = getattr(transformers, f"{kinds[model_type]}Config")(**values)
    model: PreTrainedModel = getattr(transformers, f"{kinds[model_type]}{head}")(config)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, mean=float(name.endswith("norm.weight")), std=0.3)
        else:
            torch.nn.init.normal_(parameter, std=0.3)
    model.train(mode=False)
    return model


def make_tokenizer(first: str = "[CLS]", last: str = "[SEP]", pad_id: int = 0) -> tokenizers.Tokenizer:
    """WordPiece with the special tokens around each text, and with truncation and padding, as many files have them."""
    special = ["[UNK]", first, last]
    special.insert(pad_id, "[PAD]")
    vocabulary = {token: index for index, token in enumerate([*special, *WORDS, *"abcdefghijklmnopqrstuvwxyz.,!?"])}
    tokenizer = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.add_special_tokens(special)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ends = [(first, vocabulary[first]), (last, vocabulary[last])]
    tokenizer.post_processor = processors.TemplateProcessing(f"{first} $A {last}", special_tokens=ends)
    tokenizer.enable_truncation(9)
    tokenizer.enable_padding(pad_id=pad_id, pad_token="[PAD]", length=9)
    return tokenizer


def write_folder(folder: Path, model: PreTrainedModel, **saving: Any) -> Path:
    """The folder that transformers writes, with a tokenizer."""
    model.save_pretrained(folder, **saving)
    pad_id = model.config.pad_token_id or 0
    make_tokenizer(pad_id=pad_id).save(str(folder / "tokenizer.json"))
    return folder


def write_json(path: Path, values: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(values), encoding="utf-8")


def change_json(path: Path, **changes: Any) -> None:
    """Set fields of an object in a file."""
    write_json(path, json.loads(path.read_text("utf-8")) | changes)


def change_weights(folder: Path, change: Callable[[dict[str, Tensor]], Mapping[str, Tensor] | None]) -> None:
    """Let `change` alter the tensors of model.safetensors, or return others."""
    weights = load_file(folder / "model.safetensors")
    changed = change(weights)
    save_file(dict(weights if changed is None else changed), folder / "model.safetensors")


def write_modules(folder: Path, *kinds: str, pooling: Mapping[str, Any] | None = None) -> None:
    """The files of sentence-transformers beside those of transformers."""
    kinds = kinds or ("Transformer", "Pooling", "Normalize")
    entries = [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "", "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(kinds)
    ]
    write_json(folder / "modules.json", entries)
    if "Pooling" in kinds:
        mean = {"word_embedding_dimension": 16, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
        write_json(folder / f"{kinds.index('Pooling')}_Pooling" / "config.json", mean if pooling is None else pooling)
