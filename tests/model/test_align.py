import os
import stat
from pathlib import Path

import pytest

from model.align import align
from model.clean import write_pairs
from model.config import ConfigError
from model.data import DataError
from model.training.config import DataConfig, TrainingConfig, TrainSource, TranslationConfig
from tests.model.samples import PAIRS, tiny_tokenizer, training_config

ALIGNER = """#!/bin/sh
# An aligner that links the first words of each line, and in one direction the last word of the second, too.
cp first seen-first; cp first {seen}; sed 's/.*/0-0/' first > forward; sed 's/.*/0-0 0-1/' first > backward
"""


def config(*sources: TrainSource) -> TrainingConfig:
    return training_config(objective=TranslationConfig(), data=DataConfig(("en", "de"), sources, ()))


def with_program(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    program = folder / "eflomal-align"
    program.write_text(text, encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_each_file_gets_a_line_of_links_for_each_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_program(tmp_path, monkeypatch, ALIGNER.format(seen=tmp_path / "seen"))
    write_pairs(tmp_path / "a.tsv", PAIRS[:3])
    write_pairs(tmp_path / "b.tsv", PAIRS[3:5])
    write_pairs(tmp_path / "c.tsv", PAIRS[5:])
    sources = (TrainSource("a.tsv", links="a.links"), TrainSource("c.tsv"), TrainSource("b.tsv", links="b.links"))
    align(config(*sources), tmp_path, tiny_tokenizer(vocab_size=500), lambda text: None)
    # Grown from the intersection by the neighbour that brings in a word.
    assert (tmp_path / "a.links").read_text(encoding="utf-8") == "0-0 0-1\n" * 3
    assert (tmp_path / "b.links").read_text(encoding="utf-8") == "0-0 0-1\n" * 2
    assert (tmp_path / "seen").read_text(encoding="utf-8").splitlines()[0] == "the dog sleeps ."


def test_an_aligner_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_program(tmp_path, monkeypatch, "#!/bin/sh\necho no memory >&2\nexit 3\n")
    write_pairs(tmp_path / "a.tsv", PAIRS)
    with pytest.raises(DataError, match="failed with status 3: no memory"):
        align(config(TrainSource("a.tsv", links="a.links")), tmp_path, tiny_tokenizer(), lambda text: None)


def test_a_configuration_without_links_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no file of data\.train names its links"):
        align(config(TrainSource("a.tsv")), tmp_path, tiny_tokenizer(), lambda text: None)


def test_a_missing_aligner_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda program, path=None: None)
    write_pairs(tmp_path / "a.tsv", PAIRS)
    with pytest.raises(DataError, match="there is no program eflomal-align: pip install eflomal"):
        align(config(TrainSource("a.tsv", links="a.links")), tmp_path, tiny_tokenizer(), lambda text: None)
