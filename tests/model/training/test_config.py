from pathlib import Path

import pytest

from model.config import ConfigError
from model.training.config import load_training_config

ROOT = Path(__file__).resolve().parents[3]
GOOD = """
name = "tiny"
max_steps = 10
max_batch_tokens = 256
[model]
architecture = "encoder_decoder"
num_encoder_layers = 1
num_decoder_layers = 1
d_model = 16
d_ff = 32
num_heads = 2
[tokenizer]
vocab_size = 300
[optimizer]
kind = "muon"
betas = [0.9, 0.95]
[data]
languages = ["en", "de"]
max_tokens = 64
[[data.train]]
path = "a.tsv"
[[data.train]]
path = "b.tsv"
weight = 2
from_step = 5
[[data.dev]]
path = "dev.tsv.xz"
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "run.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_is_read_with_its_defaults(tmp_path: Path) -> None:
    config = load_training_config(write(tmp_path, GOOD))
    assert config.optimizer.betas == (0.9, 0.95)
    assert [(source.path, source.weight, source.from_step) for source in config.data.train] == [
        ("a.tsv", 1.0, 0),
        ("b.tsv", 2.0, 5),
    ]
    assert config.data.dev[0].name == "dev"
    assert config.label_smoothing == 0.1
    assert config.transformer_config(300).vocab_size == 300
    assert config.to_dict()["data"]["train"][1]["from_step"] == 5


@pytest.mark.parametrize("path", sorted((ROOT / "model" / "configs").glob("*.toml")), ids=lambda path: path.name)
def test_shipped_configurations_are_sound(path: Path) -> None:
    assert load_training_config(path).name


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("max_steps = 10", "max_steps = 0", "max_steps is 0: input should be greater than or equal to 1"),
        ("max_steps = 10", 'max_steps = "many"', "max_steps is 'many': input should be a valid integer"),
        ("max_steps = 10", "steps = 10", "steps: is no field of a training configuration"),
        ('name = "tiny"', "", "name: is missing"),
        ('kind = "muon"', 'kind = "sgd"', "optimizer.kind is 'sgd': input should be 'adam' or 'muon'"),
        ("weight = 2", "weight = 0", "data.train.1.weight is 0: input should be greater than 0"),
        ("weight = 2", "wait = 2", "data.train.1.wait: is no field of a training configuration"),
        ('languages = ["en", "de"]', 'languages = ["en"]', "data.languages is ['en'], it must be two different codes"),
        ('["en", "de"]', '["en", "en"]', "data.languages is ['en', 'en'], it must be two different codes"),
        ("num_heads = 2", "num_heads = 5", "model: d_model 16 is not a multiple of num_heads 5"),
        ("num_heads = 2", "vocab_size = 9", "model.vocab_size is set: it is the tokenizer that decides"),
        ("max_tokens = 64", "max_tokens = 999", "max_batch_tokens is 256, below data.max_tokens 999"),
        (
            'path = "a.tsv"',
            'path = "a.tsv"\nfrom_step = 1',
            "every file has a from_step, so there is none to begin with",
        ),
        ('path = "b.tsv"', 'path = "a.tsv"', "data names a file twice: a.tsv"),
        ("[model]", "[model", "is not TOML"),
    ],
)
def test_a_fault_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    path = write(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(ConfigError) as caught:
        load_training_config(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_other_architectures_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    text = GOOD.replace('"encoder_decoder"', '"decoder"').replace("num_encoder_layers = 1\n", "")
    with pytest.raises(ConfigError, match="architecture is 'decoder', objective 'translation' needs 'encoder_decoder'"):
        load_training_config(write(tmp_path, text))


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    text = GOOD.replace("max_steps = 10", "max_steps = 0").replace("weight = 2", "weight = -1")
    with pytest.raises(ConfigError, match=r"data\.train\.1\.weight is -1.*; max_steps is 0"):
        load_training_config(write(tmp_path, text))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*none\.toml: No such file"):
        load_training_config(tmp_path / "none.toml")
