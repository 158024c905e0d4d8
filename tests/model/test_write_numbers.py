from pathlib import Path

import pytest

from model.data import DataError, read_pairs
from model.training.config import load_training_config
from model.write_numbers import write_number_sentences

ROOT = Path(__file__).resolve().parents[2]


def test_training_and_test_pairs_are_written_once(tmp_path: Path) -> None:
    train, test = write_number_sentences(tmp_path, 50, 20, seed=3)
    assert (len(read_pairs(train).pairs), len(read_pairs(test).pairs)) == (50, 20)
    with pytest.raises(DataError, match="exists already"):
        write_number_sentences(tmp_path, 50, 20, seed=3)


def test_the_example_reads_what_the_command_writes(tmp_path: Path) -> None:
    written = {path.name for path in write_number_sentences(tmp_path, 1, 1, seed=1)}
    data = load_training_config(ROOT / "model/configs/example.toml").data
    assert {source.path for source in data.train} | {source.path for source in data.dev} == written
