import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from model.config import ConfigError
from model.tokenizer import Tokenizer
from model.training.config import (
    CausalLmConfig,
    ContrastiveConfig,
    MaskedLmConfig,
    load_training_config,
)
from model.training.reports import Progress
from model.training.signals import Stopped
from model.training.trainer import Trainer
from tests.model.samples import make_trainer, training_config
from tests.model.training.text_samples import DOCUMENTS, ENCODER, mask_tokenizer, text_config, text_trainer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return mask_tokenizer()


@pytest.mark.parametrize("kind", [CausalLmConfig(), MaskedLmConfig(), ContrastiveConfig()], ids=lambda kind: kind.kind)
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(tmp_path: Path, tokenizer: Tokenizer, kind: Any) -> None:
    def trainer(name: str) -> Trainer:
        if isinstance(kind, ContrastiveConfig):
            return make_trainer(training_config(objective=kind, model=ENCODER), tmp_path / name, tokenizer)
        return text_trainer(text_config(kind, max_batch_tokens=48), tmp_path / name, tokenizer, DOCUMENTS * 3)

    whole = trainer("whole")
    whole.run(Progress())
    first = trainer("parts")
    step = first.train_step

    def stopping(batch: Any) -> tuple[float, float]:
        if first.step + 1 == 4:
            signal.raise_signal(signal.SIGTERM)
        return step(batch)

    first.train_step = stopping  # type: ignore[method-assign]
    with pytest.raises(Stopped):
        first.run(Progress())
    torch.manual_seed(99)  # whatever the new process drew before
    second = trainer("parts")
    second.run(Progress())
    for one, other in ((whole.model, second.model), (whole.average, second.average)):
        different = [
            name for name, tensor in one.state_dict().items() if not torch.equal(tensor, other.state_dict()[name])
        ]
        assert different == []
    assert [row.loss for row in second.metrics.losses] == [row.loss for row in whole.metrics.losses]


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        ('kind = "causal_lm"', "model.architecture is 'encoder', objective 'causal_lm' needs 'decoder'"),
        ('kind = "masked_lm"\nmasked_share = 1.5', "masked_share is 1.5: input should be less than 1"),
        ('kind = "contrastive"\nmask_token = "x"', "mask_token: is no field of a training configuration"),
        ('kind = "contrastive"', "data.languages is ['en'], it must be two different codes"),
        ('kind = "guessing"', "found using 'kind' does not match any of the expected tags"),
        (
            'kind = "masked_lm"\n[init]\ncheckpoint = "a"\nencoder_layers = [0, 2]',
            "init.encoder_layers is [0, 2], it must",
        ),
    ],
)
def test_a_fault_of_an_objective_is_named(tmp_path: Path, objective: str, message: str) -> None:
    path = tmp_path / "run.toml"
    model = '[model]\narchitecture = "encoder"\nnum_encoder_layers = 1\n'
    data = '[data]\nlanguages = ["en"]\n[[data.train]]\npath = "a.txt"\n'
    path.write_text(f'name = "x"\n[objective]\n{objective}\n{model}{data}', encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_training_config(path)
    assert message in str(caught.value)


def test_a_score_is_for_contrastive_pairs_only(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    model = '[model]\narchitecture = "decoder"\nnum_decoder_layers = 1\n'
    data = '[data]\nlanguages = ["en"]\n[[data.train]]\npath = "a.txt"\nmin_score = 4\n'
    path.write_text(f'name = "x"\n[objective]\nkind = "causal_lm"\n{model}{data}', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"a\.txt has a min_score, which objective 'causal_lm' has no use for"):
        load_training_config(path)
