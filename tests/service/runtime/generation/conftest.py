"""A tiny decoder with random weights, the bundle that it is exported to, and what it must write."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from export.bundle import Bundle, load_bundle
from export.convert import ExportOptions, export_bundle
from model.checkpoint import Checkpoint
from model.config import ModelConfig
from model.tokenizer import train
from model.transformer import Transformer


@pytest.fixture(scope="session")
def decoder() -> Transformer:
    """Weights large enough that its outputs depend on all that it reads, and that its texts end now and then."""
    torch.manual_seed(3)
    config = ModelConfig(
        "decoder",
        vocab_size=300,
        d_model=32,
        d_ff=64,
        num_heads=4,
        num_kv_heads=2,
        num_encoder_layers=0,
        num_decoder_layers=2,
        max_seq_len=96,
        positions="learned",
    )
    model = Transformer(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                parameter.mul_(8.0 if name == "embedding.position" else 1.7)
            elif name == "decoder_norm.weight":
                parameter.normal_(std=1.5)  # signs of both kinds: a tied model would else repeat one token for ever
        model.final_bias.normal_()
        model.final_bias[config.eos_id] += 3.0
    return model.eval()


@pytest.fixture(scope="session")
def decoder_bundle(decoder: Transformer, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("generation") / "tiny"
    tokenizer = train(["a b c"], 280)
    checkpoint = Checkpoint(decoder, tokenizer, {"task": "generate"})
    export_bundle(checkpoint, folder, ExportOptions(precisions=("fp32", "int4")))
    return load_bundle(Path(folder))


@pytest.fixture(scope="session")
def group_query_bundle(decoder: Transformer, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The same in fp16, with ONNX Runtime's GroupQueryAttention."""
    folder = tmp_path_factory.mktemp("generation") / "tiny"
    checkpoint = Checkpoint(decoder, train(["a b c"], 280), {"task": "generate"})
    export_bundle(checkpoint, folder, ExportOptions(precisions=("fp16",), group_query=True))
    return load_bundle(Path(folder))
