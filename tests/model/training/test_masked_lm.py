import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from torch.nn.functional import cross_entropy

from model.checkpoint import load_checkpoint
from model.tokenizer import EOS, Tokenizer, TokenizerError, train
from model.training.config import (
    DevSource,
    MaskedLmConfig,
    TrainSource,
)
from model.training.objectives.masked_lm import MaskedLm
from model.training.reports import Progress
from tests.model.samples import tiny_tokenizer
from tests.model.training.text_samples import DOCUMENTS, mask_tokenizer, text_config, text_trainer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return mask_tokenizer()


def test_hidden_tokens_are_80_10_10(tmp_path: Path, tokenizer: Tokenizer) -> None:
    trainer = text_trainer(text_config(MaskedLmConfig()), tmp_path, tokenizer, DOCUMENTS)
    objective = trainer.objective
    assert isinstance(objective, MaskedLm)
    end, mask = tokenizer.token_id(EOS), tokenizer.token_id("<mask>")
    generator = np.random.default_rng(1)
    row = [*generator.choice(objective.ordinary_ids, 40).tolist(), end]
    kinds: Counter[str] = Counter()
    places: Counter[int] = Counter()
    for _ in range(2000):
        hidden, labels = objective.hide(row, generator)
        chosen = [index for index, label in enumerate(labels) if label]
        assert len(chosen) == 6  # 15 % of 40
        assert [labels[index] for index in chosen] == [row[index] for index in chosen]
        assert all(hidden[index] == row[index] for index in range(41) if index not in chosen)
        places.update(chosen)
        for index in chosen:
            kinds["mask" if hidden[index] == mask else "same" if hidden[index] == row[index] else "other"] += 1
            assert hidden[index] not in tokenizer.special_ids - {mask}
    assert 40 not in places
    assert min(places.values()) > 0.8 * 300
    shares = {kind: count / 12000 for kind, count in kinds.items()}
    assert shares == pytest.approx({"mask": 0.8, "other": 0.1, "same": 0.1}, abs=0.015)
    assert sum(map(bool, objective.hide([7, end], generator)[1])) == 1


def test_masked_batches_are_weighted_by_their_hidden_tokens(tmp_path: Path, tokenizer: Tokenizer) -> None:
    config = text_config(MaskedLmConfig(masked_share=0.3), max_batch_tokens=64)
    trainer = text_trainer(config, tmp_path, tokenizer, DOCUMENTS)
    batch = next(trainer.plan.batches(0))
    states = trainer.model.encode(batch.input_ids, batch.lengths)
    logits = states @ trainer.model.embedding.token.weight.T
    wanted = cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), ignore_index=0)  # the mean over labels
    assert trainer.objective.num_labels(batch) == int((batch.labels > 0).sum())
    assert trainer.train_step(batch)[0] == pytest.approx(wanted.item(), rel=1e-4)


def test_an_encoder_learns_hidden_tokens_better_than_their_frequencies_tell(tmp_path: Path) -> None:
    documents = ["\n".join(f"{a} says {b}" for a, b in (("dog", "woof"), ("cat", "meow"), ("cow", "moo")) * 5)]
    tokenizer = train(documents, 300, "bpe", ["<mask>"])
    config = text_config(
        MaskedLmConfig(masked_share=0.2),
        model={"d_model": 32, "d_ff": 64},
        optimizer={"learning_rate": 5e-3, "schedule": "constant", "warmup_steps": 10},
        average_decay=0.9,
        max_steps=120,
        final_dtype="float16",
    )
    trainer = text_trainer(config, tmp_path, tokenizer, documents)
    trainer.run(Progress())
    ids = [token for document in documents for token in tokenizer.encode(document.replace("\n", " "))]
    entropy = -sum(count / len(ids) * math.log(count / len(ids)) for count in Counter(ids).values())
    [scores] = [dict(row.values) for row in trainer.metrics.scores]
    assert scores["masked_perplexity"] < 0.6 * math.exp(entropy)
    assert scores["masked_accuracy"] > 0.8
    assert load_checkpoint(tmp_path / "final").metadata["embedding"]["pooling"] == "mean"


def test_a_vocabulary_without_the_mask_is_refused(tmp_path: Path) -> None:
    without = tiny_tokenizer()
    with pytest.raises(TokenizerError, match="no token '<mask>'"):
        text_trainer(text_config(MaskedLmConfig()), tmp_path, without, DOCUMENTS)
    text_trainer(text_config(MaskedLmConfig(mask_token="<unk>")), tmp_path, without, DOCUMENTS)


def test_masked_text_may_be_pairs(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("a\tb\nc\td\n", encoding="utf-8")
    notes: list[str] = []
    file = MaskedLm.read(TrainSource("pairs.tsv"), text_config(MaskedLmConfig()), tmp_path, notes.append)
    assert file.paragraphs == ["a", "b", "c", "d"]
    assert notes == ["pairs.tsv: 4 paragraphs"]
    assert MaskedLm.read_dev(DevSource("pairs.tsv", 1), tmp_path).paragraphs == ["a", "b"]
