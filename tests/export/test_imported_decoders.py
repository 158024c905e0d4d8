"""From a folder that transformers wrote to a bundle: its decoder graph continues a text as transformers does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from export.bundle import load_bundle
from export.convert import ExportOptions, export_bundle
from export.description import ExportError
from export.session import GraphSession
from model.checkpoint import load_checkpoint, save_checkpoint
from model.importing.convert import import_checkpoint
from tests.model.importing.decoders import END, greedy_theirs, make_decoder, write_decoder

PROMPT = [17, 200, 45, 45, 3, 120, 99]
CASES: list[tuple[str, dict[str, Any]]] = [
    ("gpt2", {}),
    ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}}),
    ("mistral", {"head_dim": 6}),
    ("qwen2", {"tie_word_embeddings": True}),
    ("qwen3", {}),
]


def continue_with_onnx(bundle_folder: Path, num_tokens: int) -> tuple[np.ndarray[Any, Any], list[int]]:
    """The logits after the prompt, and the likeliest tokens, past any end token."""
    bundle = load_bundle(bundle_folder)
    spec = bundle.graph("fp32", "decoder")
    session = GraphSession(bundle.graph_path("fp32", "decoder"), spec)
    sizes = {"batch": 1, "capacity": len(PROMPT) + num_tokens}
    state = {
        tensor.name: np.zeros([size if isinstance(size, int) else sizes[size] for size in tensor.shape], np.float32)
        for tensor in spec.inputs
        if "_cache." in tensor.name
    }
    ids, position, found, first = np.array([PROMPT]), 0, list[int](), None
    for _ in range(num_tokens):
        step = {"input_ids": ids, "write_indices": np.array([position]), "read_indices": np.array([ids.shape[1] - 1])}
        outputs = session.run(state | step | {"num_candidates": np.array([1])})
        first = outputs["logits"] if first is None else first
        position += ids.shape[1]
        ids = outputs["candidate_ids"]
        found.append(int(ids[0, 0]))
    assert first is not None
    return first, found


@pytest.mark.parametrize(("model_type", "options"), CASES, ids=str)
def test_bundle_continues_as_transformers_does(model_type: str, options: dict[str, Any], tmp_path: Path) -> None:
    theirs = make_decoder(model_type, **options)
    folder = write_decoder(tmp_path / "theirs", theirs, bos=END)
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}", "utf-8")
    save_checkpoint(import_checkpoint(folder), tmp_path / "ours")
    ours = load_checkpoint(tmp_path / "ours")
    ours.metadata["languages"] = ["en"]  # a language without a direction, as models that were trained here have it
    manifest = export_bundle(ours, tmp_path / "tiny", ExportOptions(precisions=("fp32",)))
    logits, continuation = continue_with_onnx(tmp_path / "tiny", 64)
    with torch.inference_mode():
        expected = theirs(input_ids=torch.tensor([PROMPT])).logits[:, -1].numpy()
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-4)
    assert continuation == greedy_theirs(theirs, PROMPT, 64)
    generate = manifest.heads.generate
    assert generate is not None
    assert list(manifest.heads.present()) == ["generate"]
    assert generate.languages == ("en",)
    assert generate.eos_token_ids == (0,)
    assert generate.adds_bos
    assert generate.chat_template == "{{ messages[0].content }}"


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"eos_token_ids": [-1]}, "eos_token_ids.0"),
        ({"sampling": {"top_p": 2.0}}, "sampling.top_p"),
        ({"chat_template": 3}, "chat_template"),
    ],
)
def test_generation_section_that_cannot_be_is_refused_at_once(
    section: dict[str, Any], message: str, tmp_path: Path
) -> None:
    ours = import_checkpoint(write_decoder(tmp_path / "theirs", make_decoder("gpt2")))
    ours.metadata["generation"] = section
    with pytest.raises(ExportError, match=r"the checkpoint's metadata\.json") as caught:
        export_bundle(ours, tmp_path / "tiny", ExportOptions(precisions=("fp32",)))
    assert message in str(caught.value)
