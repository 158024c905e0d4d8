"""Folders of tiny random decoders as transformers writes them, and greedy decoding by either side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from tokenizers import decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedModel

from model.transformer import Transformer

VOCAB_SIZE = 300
END = "<|endoftext|>"
KINDS = {"gpt2": "GPT2", "llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}
SIZES = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "max_position_embeddings": 96,
}
GPT2_SIZES = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 96}
MISTRAL = {"sliding_window": None, "head_dim": 4}


def make_decoder(model_type: str, seed: int = 0, **options: Any) -> PreTrainedModel:
    """A random model whose weights are all drawn, wide enough that its greedy continuations vary."""
    sizes = GPT2_SIZES if model_type == "gpt2" else SIZES | (MISTRAL if model_type == "mistral" else {})
    values = {"vocab_size": VOCAB_SIZE, "bos_token_id": 0, "eos_token_id": 0, **sizes, **options}
    if model_type == "qwen3":
        values.setdefault("head_dim", 8)
    torch.manual_seed(seed)
    config = getattr(transformers, f"{KINDS[model_type]}Config")(**values)
    suffix = "LMHeadModel" if model_type == "gpt2" else "ForCausalLM"
    model: PreTrainedModel = getattr(transformers, f"{KINDS[model_type]}{suffix}")(config)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            is_norm = name.endswith(("norm.weight", "ln_1.weight", "ln_2.weight", "ln_f.weight"))
            torch.nn.init.normal_(parameter, mean=float(is_norm), std=0.3)
        else:
            torch.nn.init.normal_(parameter, std=0.5)
    model.train(mode=False)
    return model


def make_byte_level_tokenizer(bos: str | None = None) -> tokenizers.Tokenizer:
    """Byte-level byte-pair encoding, as GPT-2, Llama 3, Qwen and SmolLM have it; `bos` goes before each text."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = [END, "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE - 5,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["the dog and the cat are in the house with the other dog"] * 3, trainer)
    if bos:
        ends = [(bos, special.index(bos))]
        tokenizer.post_processor = processors.TemplateProcessing(f"{bos} $A", special_tokens=ends)
    return tokenizer


def write_decoder(folder: Path, model: PreTrainedModel, bos: str | None = None, **saving: Any) -> Path:
    """The folder that transformers writes, with a tokenizer."""
    model.save_pretrained(folder, **saving)
    make_byte_level_tokenizer(bos).save(str(folder / "tokenizer.json"))
    return folder


@torch.inference_mode()
def greedy_theirs(model: PreTrainedModel, prompt: list[int], num_tokens: int) -> list[int]:
    """The likeliest tokens, past any end token."""
    ids = torch.tensor([prompt])
    made = model.generate(  # type: ignore[operator]  # a mixin that is typed as a module
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        min_new_tokens=num_tokens,
        max_new_tokens=num_tokens,
        eos_token_id=None,
        pad_token_id=0,
    )
    found: list[int] = made[0, len(prompt) :].tolist()
    return found


@torch.inference_mode()
def greedy_ours(model: Transformer, prompt: list[int], num_tokens: int) -> list[int]:
    """The same through the cache: the prompt at once, then token by token."""
    cache, found = model.empty_cache(1, len(prompt) + num_tokens), list[int]()
    ids, position = torch.tensor([prompt]), 0
    for _ in range(num_tokens):
        states, cache = model.decode(ids, torch.tensor([position]), cache)
        position += ids.shape[1]
        ids = model.project(states[:, -1:]).argmax(-1)
        found.append(int(ids))
    return found
