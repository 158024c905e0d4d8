"""A Marian model from the folder that transformers writes to POST /translate, beside transformers' own way."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import sentencepiece
import torch
from fastapi.testclient import TestClient
from transformers import PreTrainedModel

from export.bundle import load_bundle
from export.convert import ExportOptions, export_bundle
from model.checkpoint import load_checkpoint, save_checkpoint
from model.importing.convert import import_checkpoint
from service.app import create_app
from service.heads.registry import load_models
from service.settings import Settings
from tests.model.importing.seq2seq import write_marian
from tests.model.samples import PAIRS

TEXTS = [source for source, _ in PAIRS]


@torch.inference_mode()
def translated_by_theirs(model: PreTrainedModel, folder: Path, texts: Sequence[str], tag: str = "") -> list[str]:
    """By sentencepiece, vocab.json and greedy search; transformers' own tokenizer does the same."""
    source, target = (
        sentencepiece.SentencePieceProcessor(str(folder / f"{side}.spm")) for side in ("source", "target")
    )
    ids = json.loads((folder / "vocab.json").read_text("utf-8"))
    path = folder / "target_vocab.json"
    pieces = {index: piece for piece, index in (json.loads(path.read_text("utf-8")) if path.is_file() else ids).items()}
    found = []
    for text in texts:
        row = [ids[tag]] if tag else []
        row += [ids.get(piece, ids["<unk>"]) for piece in source.encode(text, out_type=str)]
        made = model.generate(  # type: ignore[operator]  # a mixin that is typed as a module
            torch.tensor([[*row, ids["</s>"]]]),
            num_beams=1,
            do_sample=False,
            max_new_tokens=20,
        )
        written = [pieces[index] for index in made[0].tolist()]
        written_text = target.decode_pieces([piece for piece in written if piece not in ("<pad>", "</s>", "<unk>")])
        found.append(written_text.replace("▁", " ").strip() or text)  # a text stays where a model writes nothing
    return found


@pytest.mark.parametrize("kind", ["shared", "two vocabularies", "many targets"])
def test_an_imported_marian_model_translates(kind: str, tmp_path: Path) -> None:
    targets = ("deu", "fra") if kind == "many targets" else ()
    theirs = write_marian(tmp_path / "theirs", kind == "two vocabularies", targets, activation_function="swish")
    save_checkpoint(import_checkpoint(tmp_path / "theirs"), tmp_path / "ours")
    bundle = tmp_path / "bundles" / "opus"
    export_bundle(load_checkpoint(tmp_path / "ours"), bundle, ExportOptions(precisions=("fp32",), attention=True))
    assert load_bundle(bundle).manifest.tokenizers.shared is None
    settings = Settings(bundles=bundle, precision="fp32", log_level="warning")
    with TestClient(create_app(settings, load_models)) as client:
        options = {"source": "en", "target": "de", "max_new_tokens": 20}
        answer = client.post("/translate", json={"q": TEXTS, **options})
        assert answer.status_code == 200, answer.text
        wanted = translated_by_theirs(theirs, tmp_path / "theirs", TEXTS, ">>deu<<" if targets else "")
        assert answer.json()["translatedText"] == wanted
        one = client.post("/translate", json={"q": TEXTS[2], **options}).json()
        assert one["translatedText"] == wanted[2]
        listed = {entry["code"]: entry["targets"] for entry in client.get("/languages").json()}
        assert set(listed["en"]) - {"en"} == ({"de", "fr"} if targets else {"de"})
        maps = client.post(
            "/attention", json={"q": TEXTS[0], "source": "en", "target": "de", "target_text": PAIRS[0][1]}
        )
        assert maps.status_code == 200, maps.text
