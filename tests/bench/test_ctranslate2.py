"""The peer computes what our model computes, or a comparison of speeds says nothing."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.models import random_model
from bench.peers.ctranslate2 import Ctranslate2Decoder
from bench.peers.ctranslate2_converter import ConversionError, convert
from bench.side import Decoder, Gathered, Output, Text, Threads
from model.config import ModelConfig
from model.reference import beam
from model.transformer import Transformer

CONFIG = ModelConfig(
    "encoder_decoder",
    vocab_size=60,
    d_model=16,
    d_ff=32,
    num_heads=2,
    num_encoder_layers=2,
    num_decoder_layers=1,
    max_seq_len=32,
    dropout=0.0,
)
SOURCES = [(7, 21, 40, 2), (9, 2), (50, 33, 8, 14, 29, 11, 2)]
MAX_NEW_TOKENS = 10

VARIANTS: list[dict[str, Any]] = [
    {},
    {"norm_order": "post", "activation": "gelu"},
    {"positions": "learned", "scale_embeddings": False},
    {"tied_embeddings": False, "final_bias": False},
]


def lively_model(config: ModelConfig) -> Transformer:
    """Weights far from their first values, norms and biases too, so that each of them shows in the output."""
    torch.manual_seed(5)
    model = Transformer(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model.eval()


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: ",".join(map(str, variant.values())) or "default")
@pytest.mark.parametrize("beam_size", [1, 3])
def test_it_decodes_what_the_reference_decodes(variant: dict[str, Any], beam_size: int, tmp_path: Path) -> None:
    model = lively_model(replace(CONFIG, **variant))
    decoder = Ctranslate2Decoder(convert(model, tmp_path / "model"), "fp32", Threads(1, 1))
    try:
        outputs = decoder.run([Text(source, MAX_NEW_TOKENS, beam_size) for source in SOURCES])
    finally:
        decoder.close()
    expected = [beam(model, source, beam_size, MAX_NEW_TOKENS, early_stopping="always") for source in SOURCES]
    assert [list(output.token_ids) for output in outputs] == [hypotheses[0].token_ids for hypotheses in expected]


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return convert(lively_model(CONFIG), tmp_path_factory.mktemp("peer") / "model")


def test_a_request_of_its_own_gets_what_a_batch_gets(converted: Path) -> None:
    decoder = Ctranslate2Decoder(converted, "fp32", Threads(2, 1))
    gathered = Gathered("gathered", decoder, decoder.run, 2)
    texts = [Text(source, MAX_NEW_TOKENS) for source in SOURCES]

    async def ask_all(side: Decoder) -> list[Output]:
        return [output for outputs in await asyncio.gather(*(side.ask([text]) for text in texts)) for output in outputs]

    try:
        batch = decoder.prepare(texts)()
        assert [asyncio.run(ask_all(side)) for side in (decoder, gathered)] == [batch, batch]
    finally:
        gathered.close()
        decoder.close()


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    model = Transformer(replace(CONFIG, architecture="decoder", num_encoder_layers=0))
    with pytest.raises(ConversionError, match="'decoder'"):
        convert(model, tmp_path / "model")


def test_random_models_write_varied_text_and_end_only_when_asked() -> None:
    config = replace(CONFIG, vocab_size=400, d_model=64, max_seq_len=64)
    source = SOURCES[2]
    endless = beam(random_model(config, seed=1), source, 1, 30)[0].token_ids
    assert len(endless) == 30
    assert len(set(endless)) > 3
    ending = [len(beam(random_model(config, seed, writes_ends=True), source, 1, 60)[0].token_ids) for seed in range(3)]
    assert any(length < 60 for length in ending)
