from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from export.bundle import Bundle, load_bundle
from model.config import ModelConfig
from model.tokenizer import language_tag, train

if TYPE_CHECKING:  # the tests of memory and sessions need no torch
    from model.transformer import Transformer


@pytest.fixture(scope="session")
def model() -> Transformer:
    """Random weights, large enough that its outputs depend on all that it reads, and that its beams change places."""
    torch = pytest.importorskip("torch")

    from model.transformer import Transformer

    torch.manual_seed(5)
    model = Transformer(
        ModelConfig(
            "encoder_decoder",
            vocab_size=300,
            d_model=32,
            d_ff=64,
            num_heads=4,
            num_encoder_layers=2,
            num_decoder_layers=2,
            max_seq_len=96,
        )
    )
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                parameter.mul_(1.7)
            elif name == "decoder_norm.weight":
                parameter.normal_(std=1.5)  # signs of both kinds: a tied model would else repeat one token for ever
        model.final_bias.normal_()
        model.final_bias[model.config.eos_id] += 5.5
    return model.eval()


@pytest.fixture(scope="session")
def bundle(model: Transformer, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    from export.convert import ExportOptions, export_bundle
    from model.checkpoint import Checkpoint

    folder = tmp_path_factory.mktemp("runtime") / "tiny"
    tokenizer = train(["a b c"], 280, extra_tokens=[language_tag("en"), language_tag("de")])
    metadata = {"task": "translate", "languages": ["en", "de"], "directions": [["en", "de"], ["de", "en"]]}
    export_bundle(Checkpoint(model, tokenizer, metadata), folder, ExportOptions(precisions=("fp32", "int8")))
    return load_bundle(Path(folder))


@pytest.fixture(scope="session")
def encoder() -> Transformer:
    from tests.service.runtime.embedding_bundles import make_encoder

    return make_encoder()


@pytest.fixture(scope="session")
def embedding_bundle(encoder: Transformer, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    from tests.service.runtime.embedding_bundles import export_encoder

    return export_encoder(encoder, tmp_path_factory.mktemp("embedding") / "tiny-embed", ("fp32", "int8"))
