import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from model.__main__ import main
from tests.model.samples import PAIRS

ROOT = Path(__file__).resolve().parents[2]
CONFIG = """
name = "tiny"
max_steps = {max_steps}
max_batch_tokens = 256
evaluate_every_steps = 100000
autocast = "off"
[model]
architecture = "encoder_decoder"
num_encoder_layers = 1
num_decoder_layers = 1
d_model = 16
d_ff = 32
num_heads = 2
max_seq_len = 64
dropout = 0.0
[tokenizer]
vocab_size = 360
[data]
languages = ["en", "de"]
max_tokens = 64
[[data.train]]
path = "pairs.tsv"
[[data.dev]]
path = "dev.tsv"
max_pairs = 3
"""


@pytest.fixture
def workshop(tmp_path: Path) -> Path:
    """A folder with a configuration and its data, one line of which is malformed."""
    lines = ["\t".join(pair) for pair in PAIRS]
    (tmp_path / "pairs.tsv").write_text("\n".join([*lines, "a line without a tab"]) + "\n", encoding="utf-8")
    (tmp_path / "dev.tsv").write_text("\n".join(lines[:6]) + "\n", encoding="utf-8")
    (tmp_path / "run.toml").write_text(CONFIG.format(max_steps=3), encoding="utf-8")
    return tmp_path


def train(workshop: Path, *options: str) -> int:
    return main(
        ["train", str(workshop / "run.toml"), "--data", str(workshop), "--out", str(workshop / "run"), *options]
    )


def test_train_then_evaluate(workshop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(workshop) == 0
    log = capsys.readouterr().err
    assert "pairs.tsv: 20 pairs, 1 lines left out (not two columns)" in log
    assert "learning a vocabulary of 360 tokens (bpe)" in log
    assert "step 3: dev en-de bleu" in log
    assert f"the trained model is in {workshop / 'run' / 'final'}" in log.splitlines()[-1]
    metadata = json.loads((workshop / "run" / "final" / "metadata.json").read_text("utf-8"))
    assert metadata["directions"] == [["en", "de"], ["de", "en"]]
    assert metadata["training"]["steps"] == 3

    report = workshop / "scores.json"
    command = [
        "evaluate",
        str(workshop / "run" / "final"),
        str(workshop / "dev.tsv"),
        "--beam-size",
        "2",
        "--show",
        "1",
    ]
    assert main([*command, "--json", str(report)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "whole files; training scores max_pairs of each, greedily"
    assert lines[1].split()[:5] == ["set", "direction", "BLEU", "chrF", "pairs"]
    assert [line.split()[:2] for line in lines if line.startswith("dev")] == [["dev", "en-de"], ["dev", "de-en"]]
    assert f"  {PAIRS[0][0]}" in lines
    assert lines[-1].startswith("beam 2, length penalty 1, sacrebleu nrefs:1")
    written = json.loads(report.read_text("utf-8"))
    assert (written["beam_size"], written["length_penalty"]) == (2, 1.0)
    assert [(row["set"], row["direction"], row["pairs"]) for row in written["scores"]] == [
        ("dev", "en-de", 6),
        ("dev", "de-en", 6),
    ]


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: ")
    return error


def test_bad_input_ends_with_status_2_and_one_line(
    workshop: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = str(workshop / "run.toml")
    error = fails(capsys, "train", config, "--data", str(workshop / "none"))
    assert error.endswith("none: name it with --data or POLYHEAD_DATA")
    monkeypatch.setenv("POLYHEAD_DATA", str(workshop / "elsewhere"))
    assert "there is no data folder" in fails(capsys, "train", config)
    (workshop / "dev.tsv").unlink()
    assert "there is no data file" in fails(
        capsys, "train", config, "--data", str(workshop), "--out", str(workshop / "x")
    )
    assert "cannot read" in fails(capsys, "train", str(workshop / "none.toml"), "--data", str(workshop))
    assert "is not a checkpoint: it lacks" in fails(capsys, "evaluate", str(workshop), str(workshop / "pairs.tsv"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluate", "a", "b", "--beam-size", "0"], "'0' is not a whole number of at least 1"),
        (["train", "a", "--device", "tpu"], "invalid choice: 'tpu'"),
        ([], "the following arguments are required: COMMAND"),
    ],
)
def test_bad_arguments_are_told_by_the_parser(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["train", "evaluate", "number-sentences", "clean", "examples, of which", "exit status:"]),
        (["train"], ["--data", "$POLYHEAD_DATA", "goes on from its last save", "--threads", "--init"]),
        (["evaluate"], ["--beam-size", "--json", "chrF and numbers kept", "max_pairs", "Spearman's rho", "default: 1"]),
    ],
)
def test_help_names_what_there_is(capsys: pytest.CaptureFixture[str], arguments: list[str], words: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([*arguments, "--help"])
    assert caught.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert [word for word in words if word not in text] == []


def test_a_terminated_process_saves_and_the_same_command_goes_on(
    workshop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workshop / "run.toml").write_text(CONFIG.format(max_steps=100_000), encoding="utf-8")
    command = [sys.executable, "-m", "model", "train", str(workshop / "run.toml"), "--threads", "1"]
    command += ["--data", str(workshop), "--out", str(workshop / "run")]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        for line in process.stderr:
            if line.startswith("step "):
                break
        process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 60
        rest = process.stderr.read()
        assert time.monotonic() < deadline
    assert process.returncode == 128 + signal.SIGTERM
    assert "stopped by SIGTERM at step" in rest
    assert "the same command goes on from there" in rest
    step = json.loads((workshop / "run" / "last" / "metadata.json").read_text("utf-8"))["resume"]["step"]
    assert step >= 1
    (workshop / "run.toml").write_text(CONFIG.format(max_steps=step + 1), encoding="utf-8")
    assert train(workshop) == 0
    metadata = json.loads((workshop / "run" / "final" / "metadata.json").read_text("utf-8"))
    assert metadata["training"]["steps"] == step + 1
