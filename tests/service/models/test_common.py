"""What loading a bundle of any task has in common."""

from __future__ import annotations

import logging
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tokenizers
from tokenizers import models

from export.heads import Decoding
from export.manifest import Tokenizers, TokenizerSpec
from export.writing import MIN_ONNXRUNTIME
from model.tokenizer import Tokenizer
from service.engine.core.observer import NullObserver
from service.errors import StartupError
from service.models.choices import Cores, Device
from service.models.common import Loading, check_decoding, check_onnxruntime, load_tokenizer, step_observer
from service.operations.metrics import Metrics
from service.settings import Settings


def loading(device: Device, num_loops: int, *, cuda_graphs: bool = True) -> Loading:
    bundle: Any = SimpleNamespace(name="en-de")
    return Loading(bundle, "en-de", device, Cores(num_loops, 1), Settings(cuda_graphs=cuda_graphs), NullObserver())


def test_steps_are_recorded_on_a_device_by_one_loop(caplog: pytest.LogCaptureFixture) -> None:
    assert step_observer(loading("cuda", 1)) is not None
    assert step_observer(loading("cuda", 1, cuda_graphs=False)) is None
    assert step_observer(loading("cpu", 1)) is None
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        assert step_observer(loading("cuda", 2)) is None
    assert caplog.messages == ["CUDA graphs are off: they need one loop"]


def test_metrics_tell_how_steps_ran() -> None:
    metrics = Metrics()
    observer = metrics.observer("en-de")
    for run in ("captured", "replayed", "replayed"):
        observer.on_device_step(run)
    found = [line for line in metrics.render().decode().splitlines() if line.startswith("polyhead_device_steps_total")]
    assert found == [
        'polyhead_device_steps_total{model="en-de",run="captured"} 1.0',
        'polyhead_device_steps_total{model="en-de",run="replayed"} 2.0',
    ]


@pytest.mark.parametrize(
    ("found", "wanted", "is_right"),
    [
        ("1.32.0", "1.31", True),
        ("1.31", "1.31.0", True),
        ("2.0", "1.31", True),
        ("1.31.0rc1+cpu", "1.31", True),
        ("1.30.9", "1.31", False),
        ("1.4.0", "1.31", False),
    ],
)
def test_an_older_onnxruntime_than_the_graphs_need_is_refused(found: str, wanted: str, is_right: bool) -> None:
    bundle: Any = SimpleNamespace(path="bundles/x", manifest=SimpleNamespace(min_onnxruntime=wanted))
    if is_right:
        check_onnxruntime(bundle, found)
        return
    with pytest.raises(StartupError, match=f"bundle bundles/x needs ONNX Runtime {wanted} or later, this is {found}"):
        check_onnxruntime(bundle, found)


def test_the_exporter_asks_for_no_newer_onnxruntime_than_the_server_installs() -> None:
    root = Path(__file__).resolve().parents[3]
    extras = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    (needed,) = [name.partition(">=")[2] for name in extras["cpu"] if name.startswith("onnxruntime")]
    bundle: Any = SimpleNamespace(path="", manifest=SimpleNamespace(min_onnxruntime=MIN_ONNXRUNTIME))
    check_onnxruntime(bundle, needed)


def test_decoding_that_no_engine_does_is_refused() -> None:
    bundle: Any = SimpleNamespace(path="bundles/x")
    check_decoding(bundle, Decoding(beam_size=1, num_candidates=8))
    with pytest.raises(StartupError, match=r"bundles/x asks for no_repeat_ngram_size in its section decoding"):
        check_decoding(bundle, Decoding(no_repeat_ngram_size=3))


@pytest.mark.parametrize("vocab_size", [8, 9])
def test_a_tokenizer_with_ids_beyond_the_model_is_refused(tmp_path: Path, vocab_size: int) -> None:
    backend = tokenizers.Tokenizer(models.WordLevel({"<unk>": 0, "a": 8}, unk_token="<unk>"))
    Tokenizer(backend).save(tmp_path / "tokenizer.json")
    manifest = SimpleNamespace(tokenizers=Tokenizers(shared=TokenizerSpec(file="tokenizer.json")))
    config = SimpleNamespace(vocab_size=vocab_size, num_source_tokens=vocab_size)
    bundle: Any = SimpleNamespace(
        path=tmp_path, manifest=manifest, config=config, tokenizer_path=tmp_path / "tokenizer.json"
    )
    if vocab_size > 8:
        assert load_tokenizer(bundle).encode("a") == [8]
        return
    with pytest.raises(StartupError, match="its tokenizer gives ids up to 8, its model has 8 tokens"):
        load_tokenizer(bundle)
