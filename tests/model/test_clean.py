from pathlib import Path

import pytest

from model.clean import clean, write_pairs
from model.config import ConfigError
from model.data import DataError, read_pairs
from model.training.config import CausalLmConfig, DataConfig, DevSource, TrainSource
from tests.model.samples import PAIRS, training_config


def test_cleaned_files_stand_under_the_same_paths(tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "clean"
    write_pairs(data / "a.tsv.xz", [*PAIRS, ("In 1984.", "Damals.")])
    write_pairs(data / "more" / "b.tsv", [PAIRS[0], ("He ate.", "Er aß, daß es krachte.")])
    write_pairs(data / "dev.tsv", PAIRS[:2])
    sources = (TrainSource("a.tsv.xz"), TrainSource("more/b.tsv", old_german_spelling=True))
    config = training_config(data=DataConfig(("en", "de"), sources, (DevSource("dev.tsv"),)))
    told: list[str] = []
    clean(config, data, out, told.append)
    assert read_pairs(out / "a.tsv.xz").pairs == PAIRS
    assert read_pairs(out / "more" / "b.tsv").pairs == [("He ate.", "Er aß, dass es krachte.")]
    assert read_pairs(out / "dev.tsv").pairs == PAIRS[:2]
    assert told[1::2] == [
        "a.tsv.xz: 20 kept; left out: 1 with unlike numbers",
        "more/b.tsv: 1 kept; left out: 1 twice",
    ]


def test_running_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'causal_lm' reads running text"):
        clean(training_config(objective=CausalLmConfig()), tmp_path, tmp_path, lambda text: None)


def test_a_missing_development_file_is_named(tmp_path: Path) -> None:
    write_pairs(tmp_path / "a.tsv", PAIRS)
    config = training_config(data=DataConfig(("en", "de"), (TrainSource("a.tsv"),), (DevSource("gone.tsv"),)))
    with pytest.raises(DataError, match=r"no data file .*gone\.tsv"):
        clean(config, tmp_path, tmp_path / "out", lambda text: None)
