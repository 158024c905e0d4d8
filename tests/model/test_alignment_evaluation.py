from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import model.alignment_evaluation as evaluation
from model.__main__ import main
from model.alignment_evaluation import (
    AlignedPair,
    Setting,
    best_setting,
    cross_maps,
    evaluate_alignment,
    read_alignments,
    word_groups,
)
from model.checkpoint import Checkpoint, CheckpointError, save_checkpoint
from model.data import DataError
from tests.model.samples import make_model, tiny_tokenizer

LINES = "der hund schläft .\tthe dog sleeps .\t0-0 1-1 2-2 3-3\ndie katze .\tthe cat\t0-0 1?1 9-9\n"


def translator(**metadata: Any) -> Checkpoint:
    tokenizer = tiny_tokenizer()
    model = make_model(vocab_size=tokenizer.vocab_size)
    values: dict[str, Any] = {
        "task": "translate",
        "languages": ["en", "de"],
        "directions": [["en", "de"], ["de", "en"]],
    }
    return Checkpoint(model, tokenizer, values | metadata)


def gold(tmp_path: Path, text: str = LINES) -> Path:
    path = tmp_path / "gold.tsv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_is_read_with_its_sure_and_possible_links(tmp_path: Path) -> None:
    file = read_alignments(gold(tmp_path))
    assert file.pairs[0] == AlignedPair(
        ["der", "hund", "schläft", "."],
        ["the", "dog", "sleeps", "."],
        frozenset({(i, i) for i in range(4)}),
        frozenset(),
    )
    assert (set(file.pairs[1].sure), set(file.pairs[1].possible), file.num_left_out) == ({(0, 0)}, {(1, 1)}, 1)


@pytest.mark.parametrize(
    ("line", "message"),
    [("a\tb", "line 2: 2 columns"), ("a\tb\t0-0 x", "line 2: 'x' is not a link"), ("a\tb\t0:0", "'0:0' is not a link")],
)
def test_a_line_that_cannot_be_read_is_named(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_alignments(gold(tmp_path, f"a\tb\t0-0\n{line}\n"))


def test_a_file_without_a_sure_link_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no sure link"):
        read_alignments(gold(tmp_path, "a\tb\t0?0\n"))


def test_every_token_belongs_to_the_word_that_it_spells() -> None:
    tokenizer = tiny_tokenizer()
    words = ["Der", "Straßenhund", "schläft", "."]
    ids, groups = word_groups(tokenizer, words)
    assert ids == tokenizer.encode("Der Straßenhund schläft.")
    assert sorted(place for group in groups for place in group) == list(range(len(ids)))
    assert [tokenizer.decode([ids[place] for place in group]).strip() for group in groups] == words


def test_maps_have_a_row_for_each_input_and_sum_to_one() -> None:
    checkpoint = translator()
    maps = cross_maps(checkpoint, [4, 10, 11, 2], [12, 13, 14])
    assert sorted(maps) == [0, 1]
    assert maps[0].shape == (2, 4, 4)
    np.testing.assert_allclose(maps[1].sum(-1), 1, atol=1e-5)


def planted(checkpoint: Checkpoint, source: list[int], target: list[int]) -> dict[int, Any]:
    """Layer 0 is blind. In layer 1, head 1 looks at the same place of the text for the token that it chooses next."""
    maps = {layer: np.full((2, len(target) + 1, len(source)), 1 / len(source), np.float32) for layer in (0, 1)}
    for row in range(len(target)):
        maps[1][1, row] = 0
        maps[1][1, row, row + 1] = 1  # the tag of the language stands first
    return maps


def test_the_planted_head_is_found_in_both_directions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "cross_maps", planted)
    # Each of these words is one token here, so that places of words are places of tokens.
    pairs = [AlignedPair(["a", "b", "the"], ["is", "s", "I"], frozenset({(0, 0), (1, 1), (2, 2)}), frozenset())]
    records = evaluate_alignment(translator(), pairs, ("de", "en"), lambda _: None)
    assert best_setting(records, ["de-en", "en-de"]) == (Setting(1, 1, shifted=False), 0.0)
    by_key = {(record.setting, record.method): record.score.error_rate for record in records}
    assert by_key[Setting(1, 1, shifted=False), "intersection"] == 0.0
    assert by_key[Setting(1, 1, shifted=True), "de-en"] > 0.5
    assert by_key[Setting(0, 0, shifted=False), "de-en"] == pytest.approx(2 / 3)  # all to the first word: one is right
    assert by_key[None, "diagonal"] == 0.0
    assert len(records) == 1 + 12 * 5  # two layers of two heads and their mean, shifted or not; two ways, three unions


def test_one_direction_has_no_symmetrization() -> None:
    checkpoint = translator(directions=[["en", "de"]])
    pairs = [AlignedPair(["der", "hund"], ["the", "dog"], frozenset({(0, 0)}), frozenset())]
    records = evaluate_alignment(checkpoint, pairs, ("de", "en"), lambda _: None)
    assert {record.method for record in records} == {"diagonal", "en-de"}


def test_languages_that_the_model_does_not_translate_are_refused() -> None:
    pairs = [AlignedPair(["a"], ["b"], frozenset({(0, 0)}), frozenset())]
    with pytest.raises(CheckpointError, match="does not translate between fr and en, but en-de, de-en"):
        evaluate_alignment(translator(), pairs, ("fr", "en"), lambda _: None)
    with pytest.raises(CheckpointError, match="'embed'"):
        evaluate_alignment(translator(task="embed"), pairs, ("de", "en"), lambda _: None)


def test_a_sentence_beyond_the_model_is_refused() -> None:
    pairs = [AlignedPair(["hund"] * 40, ["dog"], frozenset({(0, 0)}), frozenset())]
    with pytest.raises(DataError, match=r"pair 1 has .* at most 32"):
        evaluate_alignment(translator(), pairs, ("de", "en"), lambda _: None)


def test_the_command_prints_a_table_and_names_the_best_in_the_metadata(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "checkpoint"
    save_checkpoint(translator(), folder)
    scores = tmp_path / "scores.json"
    arguments = ["evaluate-alignment", str(folder), str(gold(tmp_path)), "--columns", "de,en", "--json", str(scores)]
    assert main([*arguments, "--device", "cpu"]) == 0
    output = capsys.readouterr().out
    assert "diagonal" in output
    assert "1 links of" in output
    report = json.loads(scores.read_text())
    assert len(report["scores"]) == 1 + 12 * 5
    metadata = json.loads((folder / "metadata.json").read_text())
    assert "alignment" not in metadata
    assert main([*arguments, "--save"]) == 0
    metadata = json.loads((folder / "metadata.json").read_text())
    assert metadata["alignment"] == report["best"]
    assert set(report["best"]) == {"layer", "head", "shifted", "aggregate", "error_rate"}
    assert metadata["task"] == "translate"


@pytest.mark.parametrize("columns", ["de", "de,", "de,de", "de,en,fr"])
def test_columns_must_be_two_languages(columns: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["evaluate-alignment", "folder", "file", "--columns", columns])
    assert caught.value.code == 2
    assert repr(columns) in capsys.readouterr().err
