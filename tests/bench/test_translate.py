"""A whole run of the translation benchmark with a tiny model, and how sentences are cut into batches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.models import RANDOM, random_checkpoint
from bench.plot import draw
from bench.translate import CHARTS, Options, num_sentences, run

SIZES = {"vocab_size": 400, "d_model": 64, "d_ff": 64, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1}


def test_everything_is_measured_printed_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = random_checkpoint(tmp_path, replace(RANDOM, **SIZES), writes_ends=True)  # type: ignore[arg-type]
    options = Options(
        checkpoint,
        precisions=("fp32",),
        parts=("batches", "arrivals"),
        batch_sizes=(8,),
        rounds=1,
        num_arrivals=12,
        cache=tmp_path,
    )
    results = run(options)
    assert [(row["beam_size"], row["equal_tokens"] > 0.99) for row in results["agreement"]] == [(1, True), (4, True)]
    assert [(row["beam_size"], row["side"]) for row in results["batches"]] == [
        *((1, "polyhead"), (1, "ctranslate2"), (4, "polyhead"), (4, "ctranslate2"))
    ]
    for row in results["batches"]:
        assert row["slowest_sentences_per_second"] <= row["sentences_per_second"] <= row["fastest_sentences_per_second"]
        assert row["tokens_per_second"] > 0
    assert list(results["batches"][0]["ratios"]) == ["ctranslate2 fp32"]
    loads = results["arrivals"]
    assert [row["side"] for row in loads] == ["polyhead", "ctranslate2 gathered", "ctranslate2"] * 5
    assert {row["requests"] for row in loads} == {12}
    assert "| 4 | 8 | polyhead | fp32 |" in capsys.readouterr().out
    assert len(draw(results, tmp_path / "charts", CHARTS)) == 2


@pytest.mark.parametrize(
    ("batch_size", "available", "expected"), [(1, 64, 16), (8, 64, 32), (32, 64, 32), (64, 64, 64)]
)
def test_a_case_decodes_whole_batches(batch_size: int, available: int, expected: int) -> None:
    assert num_sentences(batch_size, available) == expected
