"""What is measured: shapes of models, batches and lengths, in full for a GPU, and tiny to try the script itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bench.models import RANDOM
from model.config import ModelConfig

LONG, SHORT = "translate-6+6", "translate-6+2"


@dataclass(frozen=True)
class Scale:
    """Sizes of one run. Models are named as in `--model`; the first of each task is the one that matters most."""

    translate: Mapping[str, ModelConfig]
    embed: Mapping[str, ModelConfig]
    generate: Mapping[str, ModelConfig]
    batch_sizes: tuple[int, ...]
    beam_sizes: tuple[int, ...]
    num_streams: tuple[int, ...]
    source_tokens: int
    target_tokens: int
    text_tokens: int
    prompt_tokens: int
    new_tokens: int
    capacities: tuple[int, ...]
    """Of the cache, at which a step of the first decoder is timed while its rows stay `prompt_tokens` long."""
    num_clients: int
    num_http_texts: int
    http_seconds: float
    num_sentences: int
    """Real sentences that each shipped bundle is compared on."""
    sentence_tokens: int
    """At most so many tokens of output for each of them."""
    copy_bytes: int
    matrix_size: int

    @property
    def models(self) -> dict[str, ModelConfig]:
        return {**self.translate, **self.embed, **self.generate}


def _translate(num_decoder_layers: int) -> ModelConfig:
    return ModelConfig.from_dict({**RANDOM.to_dict(), "num_decoder_layers": num_decoder_layers})


def _bert(num_layers: int, width: int, num_heads: int) -> ModelConfig:
    """Devlin et al. 2019, https://arxiv.org/abs/1810.04805."""
    return ModelConfig(
        architecture="encoder",
        vocab_size=30_522,
        d_model=width,
        d_ff=4 * width,
        num_heads=num_heads,
        num_encoder_layers=num_layers,
        positions="learned",
        norm_order="post",
        norm_eps=1e-12,
        activation="gelu",
        dropout=0.0,
        scale_embeddings=False,
        embedding_norm=True,
        num_token_types=2,
        final_bias=False,
    )


GPT2 = ModelConfig(
    architecture="decoder",
    vocab_size=50_257,
    d_model=768,
    d_ff=3072,
    num_heads=12,
    num_decoder_layers=12,
    max_seq_len=1024,
    positions="learned",
    activation="gelu_tanh",
    dropout=0.0,
    scale_embeddings=False,
    final_bias=False,
)
"""The smallest GPT-2 (Radford et al. 2019), 124 M parameters."""

LLAMA = ModelConfig(
    architecture="decoder",
    vocab_size=32_000,
    d_model=2048,
    d_ff=5632,
    num_heads=32,
    num_kv_heads=4,
    num_decoder_layers=22,
    max_seq_len=2048,
    positions="rotary",
    norm="rms",
    activation="silu",
    gated_feed_forward=True,
    query_key_value_bias=False,
    attention_output_bias=False,
    feed_forward_bias=False,
    dropout=0.0,
    scale_embeddings=False,
    tied_embeddings=False,
    final_bias=False,
)
"""TinyLlama (Zhang et al. 2024, https://arxiv.org/abs/2401.02385), 1.1 billion parameters."""

FULL = Scale(
    translate={LONG: _translate(6), SHORT: _translate(2)},
    embed={"embed-minilm": _bert(6, 384, 12), "embed-bert-base": _bert(12, 768, 12)},
    generate={"generate-gpt2": GPT2, "generate-llama-1b": LLAMA},
    batch_sizes=(1, 8, 64, 256),
    beam_sizes=(1, 4),
    num_streams=(1, 8, 64),
    source_tokens=20,
    target_tokens=30,
    text_tokens=128,
    prompt_tokens=32,
    new_tokens=96,
    capacities=(64, 128, 256, 512, 1024),
    num_clients=32,
    num_http_texts=2048,
    http_seconds=4.0,
    num_sentences=64,
    sentence_tokens=64,
    copy_bytes=1 << 30,
    matrix_size=8192,
)

_TINY_SIZE = {"vocab_size": 96, "d_model": 32, "d_ff": 48, "num_heads": 2, "max_seq_len": 64}


def _tiny(config: ModelConfig, **changes: int) -> ModelConfig:
    return ModelConfig.from_dict({**config.to_dict(), **_TINY_SIZE, **changes})


TINY = Scale(
    translate={"translate-tiny": _tiny(RANDOM, num_encoder_layers=2, num_decoder_layers=1)},
    embed={"embed-tiny": _tiny(_bert(1, 32, 2))},
    generate={"generate-tiny": _tiny(LLAMA, num_heads=4, num_kv_heads=2, num_decoder_layers=2)},
    batch_sizes=(2,),
    beam_sizes=(1, 4),
    num_streams=(2,),
    source_tokens=6,
    target_tokens=5,
    text_tokens=8,
    prompt_tokens=6,
    new_tokens=5,
    capacities=(16, 64),
    num_clients=2,
    num_http_texts=8,
    http_seconds=0.2,
    num_sentences=3,
    sentence_tokens=6,
    copy_bytes=1 << 20,
    matrix_size=64,
)
"""Shows in seconds that every part of the script works; its speeds mean nothing."""
