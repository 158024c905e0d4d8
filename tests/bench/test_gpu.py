"""`python -m bench gpu`: every part from end to end with tiny models on the processor, and how figures are made."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench.__main__ import main
from bench.gpu.device import Ceilings
from bench.gpu.placement import Kernel, attention_kernels, kind_of, read_profile
from bench.gpu.record import Record
from bench.gpu.scale import FULL, TINY
from bench.gpu.tables import PARTS
from bench.gpu.work import encoder_work, step_work
from bench.peers.ctranslate2_device import link_cublas
from bench.peers.torch_sides import TorchEncoder, TorchGenerator, TorchTranslator
from bench.side import BenchError
from model.config import ModelConfig
from model.decoding import beam_search
from model.reference import greedy
from model.transformer import Transformer

ROOT = Path(__file__).resolve().parents[2]
CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One run of the whole script; one shipped bundle and the tiny models stand for all that ship."""
    folder = tmp_path_factory.mktemp("gpu")
    cache, bundles, found = folder / "cache", folder / "bundles", folder / "results.json"
    arguments = ["gpu", "--device", "cpu", "--cache", str(cache)]
    assert main([*arguments, "--prepare"]) == 0
    for bundle in sorted(cache.glob("*/bundle")):
        shutil.copytree(bundle, bundles / bundle.parent.name)
    (bundles / "embed-en-de").symlink_to(ROOT / "bundles" / "embed-en-de")
    arguments += ["--bundles", str(bundles), "--rounds", "1", "--minutes", "60", "--json", str(found)]
    assert main(arguments) == 0
    loaded: dict[str, Any] = json.loads(found.read_text())
    return loaded


def test_every_part_is_measured(results: dict[str, Any]) -> None:
    assert results["failed"] == []
    assert results["left_out"] == []
    assert all(results[part] for part in PARTS)
    assert results["ceilings"]["copied_gigabytes_per_second"] > 0


def test_a_device_is_equal_to_itself_in_float32(results: dict[str, Any]) -> None:
    exact = [row for row in results["parity"] if row["precision"] == "fp32"]
    assert {row["largest_difference"] for row in exact if "largest_difference" in row} == {0.0}
    assert {row["equal_tokens"] for row in exact if "equal_tokens" in row} == {1.0}
    assert {row["what"] for row in exact} >= {
        *("encoder: cross_key", "encoder: cross_value", "encoder: embeddings", "encoder: token_embeddings"),
        *("decoder: logits", "greedy, whole", "beam 4, whole", "attention: encoder_attentions"),
    }


def test_float16_is_near_but_not_the_same(results: dict[str, Any]) -> None:
    differences = [
        row["largest_difference"]
        for row in results["parity"]
        if row["precision"] == "fp16" and "largest_difference" in row
    ]
    assert differences
    assert all(0 < difference < 0.1 for difference in differences)


def test_every_node_of_every_graph_is_placed(results: dict[str, Any]) -> None:
    placed = {(row["bundle"], row["precision"], row["graph"]): row for row in results["placement"]}
    assert len(placed) == 2 * (2 + 1 + 1) + 3  # and the shipped encoder with its attention graph
    for row in placed.values():
        assert row["on_device"] == len(row["nodes"]) > 5
        assert row["fell_back"] == row["host"] == []
    operators = {node["operator"] for row in placed.values() if row["graph"] == "decoder" for node in row["nodes"]}
    assert {"TensorScatter", "Attention"} <= operators


def test_the_peers_compute_what_we_do(results: dict[str, Any]) -> None:
    for part, cases in (
        ("translate", len(TINY.batch_sizes) * len(TINY.beam_sizes)),
        ("embed", len(TINY.batch_sizes)),
        ("generate", len(TINY.num_streams)),
    ):
        rows = [row for row in results[part] if row["precision"] == "fp32"]
        assert len(rows) == cases
        assert min(row["equal"] for row in rows) > 0.999
        assert all(row["tokens_per_second"] > 0 and row["times_compiled"] > 0 for row in rows)
    translated = [row for row in results["translate"] if row["precision"] == "fp32"]
    assert all(row["times_ctranslate2"] > 0 and row["equal_ctranslate2"] > 0.999 for row in translated)


def test_the_name_that_ctranslate2_loads_is_linked_where_it_is_not_there(tmp_path: Path) -> None:
    libraries, folder = tmp_path / "nvidia" / "cu13" / "lib", tmp_path / "links"
    with pytest.raises(BenchError, match=r"neither libcublas.so.12 nor libcublas.so.13 in .*: install nvidia-cublas"):
        link_cublas(folder, [tmp_path / "nvidia"])
    libraries.mkdir(parents=True)
    for name in ("libcublas.so.13", "libcublasLt.so.13"):
        (libraries / name).write_text(name)
    for _ in range(2):  # also where the links are there
        assert link_cublas(folder, [tmp_path / "nvidia"]) == folder
    assert (folder / "libcublas.so.12").read_text() == "libcublas.so.13"
    assert (folder / "libcublasLt.so.13").is_symlink()  # loaded from beside it
    (libraries / "libcublas.so.12").write_text("")
    assert link_cublas(folder, [tmp_path / "nvidia"]) == libraries


def test_the_share_that_http_keeps_is_of_the_same_texts(results: dict[str, Any]) -> None:
    assert {row["task"] for row in results["http"]} == {"translate", "embed"}
    for row in results["http"]:
        assert row["kept"] == pytest.approx(row["http_texts_per_second"] / row["engine_texts_per_second"])


def test_without_cuda_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: [CPU])
    assert main(["gpu"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "onnxruntime-gpu[cuda,cudnn]" in error
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: [CUDA, CPU])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["gpu"]) == 1
    assert "sees no CUDA device" in capsys.readouterr().err


def test_a_shape_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gpu", "--device", "cpu", "--model", "generate-huge"]) == 1
    assert "generate-huge is unknown here, allowed: translate-tiny" in capsys.readouterr().err


def tiny(name: str) -> Transformer:
    torch.manual_seed(3)
    model = Transformer(TINY.models[name]).eval().requires_grad_(False)
    if model.config.final_bias:
        model.final_bias[model.config.eos_id] = -1e4  # peers look for no ends
    return model


def random_ids(num_rows: int, num_tokens: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.random.default_rng(1).integers(3, 96, (num_rows, num_tokens))


def test_pytorch_with_a_static_cache_searches_as_the_reference_does() -> None:
    model, sources = tiny("translate-tiny"), random_ids(3, 6)
    for beam_size in (1, 4):
        expected = beam_search(model, sources.tolist(), beam_size, max_new_tokens=7)
        found = TorchTranslator(model, sources, beam_size, 7, "eager")
        assert found(7) == [hypothesis.token_ids for hypothesis in expected]
        assert found(2) == [
            hypothesis.token_ids for hypothesis in beam_search(model, sources.tolist(), beam_size, max_new_tokens=2)
        ]


def test_pytorch_with_a_static_cache_continues_as_the_reference_does() -> None:
    model = tiny("generate-tiny")
    prompts = random_ids(2, 5)
    # The reference ends where the end token is likeliest; here it is no token that either would choose.
    expected = [greedy(model, None, 6, prompt.tolist()) for prompt in prompts]
    found = TorchGenerator(model, prompts, 6, "eager")(6)
    for whole, part in zip(found, expected, strict=True):
        assert whole[: len(part)] == part
        assert len(part) > 1


def test_pytorch_embeds_as_the_model_does() -> None:
    model, texts = tiny("embed-tiny"), random_ids(3, 5)
    states = model.encode(torch.from_numpy(texts), torch.full((3,), 5))
    assert np.abs(TorchEncoder(model, texts, "eager")() - states.mean(1).numpy()).max() < 1e-6


def test_the_floor_is_the_slower_of_bytes_and_operations() -> None:
    ceilings = Ceilings(100.0, {"fp16": 50.0, "fp32": 10.0})
    assert ceilings.floor(200.0, 50.0, "fp16") == 2.0
    assert ceilings.floor(200.0, 500.0, "fp16") == 10.0


def test_the_work_of_a_step_is_counted() -> None:
    """A decoder with weights that can be counted on paper: one layer of width 4, one head, no biases."""
    config = ModelConfig(
        architecture="decoder",
        vocab_size=10,
        d_model=4,
        d_ff=8,
        num_heads=1,
        num_decoder_layers=1,
        max_seq_len=16,
        query_key_value_bias=False,
        attention_output_bias=False,
        feed_forward_bias=False,
        final_bias=False,
    )
    weights = 4 * 12 + 4 * 4 + 2 * 4 * 8 + 3 * 2 * 4 + 10 * 4  # projections, feed-forward, three norms, vocabulary
    work = step_work(Transformer(config), "fp16", 3, 5)
    assert work.num_bytes == 2 * (weights + 2 * 4 * 3 * 5)
    assert work.operations == 2 * weights * 3 + 4 * 4 * 3 * 5


def test_what_is_made_once_a_source_is_no_work_of_a_step() -> None:
    model = tiny("translate-tiny")
    decoder = sum(p.numel() for n, p in model.named_parameters() if n.startswith(("decoder", "final", "embedding")))
    once = sum(p.numel() for p in model.decoder_layers[0].cross_attention.key_value.parameters())
    assert step_work(model, "fp32", 1, 0).num_bytes == 4 * (decoder - once)
    encoder = sum(p.numel() for n, p in model.named_parameters() if n.startswith("encoder"))
    assert encoder_work(model, "fp16", 1, 1).num_bytes == 2 * encoder


@pytest.mark.parametrize(
    ("operator", "where", "outputs", "kind"),
    [
        ("MatMul", CUDA, [{"float": [4, 4]}], "device"),
        ("Shape", CPU, [{"int64": [2]}], "host"),
        ("Gather", CPU, [{"int64": []}], "host"),
        ("Attention", CPU, [{"float16": [1, 1, 8]}], "fell_back"),
        ("TopK", CPU, [{"float": [1, 1]}, {"int64": [1, 1]}], "fell_back"),
        ("Range", CPU, [{"int64": [64, 512]}], "fell_back"),
        ("MemcpyToHost", CUDA, [{"int64": [2]}], "copy"),
    ],
)
def test_a_node_on_the_processor_is_shape_arithmetic_or_a_fault(
    operator: str, where: str, outputs: list[dict[str, list[int]]], kind: str
) -> None:
    assert kind_of(operator, where, CUDA, outputs) == kind


def test_a_profile_has_each_node_once(tmp_path: Path) -> None:
    arguments = {"op_name": "MatMul", "provider": CUDA, "output_type_shape": [{"float": [1]}]}
    events = [
        {"cat": "Session", "name": "model_run"},
        {"cat": "Node", "name": "a_fence_before", "args": {"op_name": "MatMul"}},
        *[{"cat": "Node", "name": "a_kernel_time", "args": arguments}] * 2,
    ]
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(events))
    assert [(node.name, node.kind) for node in read_profile(path, CUDA)] == [("a", "device")]


def test_attention_is_told_from_other_kernels() -> None:
    names = ["void flash_fwd_kernel<Flash_fwd_traits>", "ampere_fp16_s16816gemm", "softmax_warp_forward"]
    found = attention_kernels(Kernel(name, 1, 1) for name in names)
    assert found == [names[2], names[0]]


def test_time_that_one_part_leaves_goes_to_the_others() -> None:
    clock = [0.0]
    record = Record({}, None, 100.0, {"parity": 1, "embed": 1, "http": 2}, lambda: clock[0])
    late = []
    # A fourth of 100 s, then a third of the 75 s that are left, then all that is left of those.
    for part, times in (("parity", (24.0, 25.0)), ("embed", (49.0, 50.0)), ("http", (99.0, 100.0))):
        record.begin(part)
        for clock[0] in times:
            late.append(record.is_late)
    assert late == [False, True] * 3


def test_figures_are_kept_part_by_part(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    record = Record({"machine": "this"}, path, 1.0, {"capacity": 1})
    record.begin("capacity")
    record.add({"model": "m", "milliseconds": 1.5})
    record.leave_out("more", "no time was left")
    record.fail(RuntimeError("it broke"))
    record.write()
    assert json.loads(path.read_text()) == {
        "machine": "this",
        "capacity": [{"model": "m", "milliseconds": 1.5}],
        "left_out": ["capacity: more: no time was left"],
        "failed": ["capacity: it broke"],
    }


def test_the_shapes_are_those_that_are_named() -> None:
    with torch.device("meta"):
        counts = {name: Transformer(config).num_parameters() for name, config in FULL.models.items()}
    assert counts["generate-gpt2"] == 124_439_808
    assert counts["generate-llama-1b"] == 1_100_048_384
    assert 22e6 < counts["embed-minilm"] < 23e6
    assert 108e6 < counts["embed-bert-base"] < 110e6
