import math
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from model.checkpoint import load_checkpoint
from model.config import ConfigError
from model.data import DataError, TextFile, read_documents
from model.packing import blocks, pack
from model.perplexity import evaluate_text, token_log_probs
from model.tokenizer import EOS, Tokenizer, TokenizerError, train
from model.training.config import (
    CausalLmConfig,
    ContrastiveConfig,
    DataConfig,
    DevSource,
    MaskedLmConfig,
    TrainingConfig,
    TrainSource,
    load_training_config,
)
from model.training.data import build_plan
from model.training.objectives import OBJECTIVES
from model.training.objectives.causal_lm import CausalLm
from model.training.objectives.masked_lm import MaskedLm
from model.training.reports import Progress
from model.training.signals import Stopped
from model.training.trainer import Trainer
from tests.model.samples import PAIRS, make_trainer, tiny_tokenizer, training_config

DOCUMENTS = ["The dog sleeps.\nThe cat eats 12 fish.", "A house", "It is raining today.\nIt was cold yesterday."]
ENCODER = {"architecture": "encoder", "num_decoder_layers": 0}
DECODER = {"architecture": "decoder", "num_encoder_layers": 0}


def text_config(kind: CausalLmConfig | MaskedLmConfig, limit: int = 16, **changes: Any) -> TrainingConfig:
    shape = DECODER if isinstance(kind, CausalLmConfig) else ENCODER
    model = shape | changes.pop("model", {})
    data = DataConfig(("en",), (TrainSource("text.txt"),), (), limit)
    return training_config(objective=kind, model=model, data=data, **changes)


def text_trainer(config: TrainingConfig, folder: Path, tokenizer: Tokenizer, documents: list[str]) -> Trainer:
    kind = OBJECTIVES[config.objective.kind]
    tokenizer = kind.prepare_tokenizer(tokenizer)
    file = TextFile(Path("text.txt"), documents)
    dev = {"text": file}
    objective = kind(config, tokenizer, config.transformer_config(tokenizer.vocab_size), dev)
    plan = build_plan([file], objective, config, lambda text: None)
    plan.round_examples = len(plan.streams[0].examples)
    return Trainer(config, folder, tokenizer, plan, objective, torch.device("cpu"))


@pytest.fixture(scope="module")
def mask_tokenizer() -> Tokenizer:
    return train([*DOCUMENTS, *(text for pair in PAIRS for text in pair)], 400, "bpe", ["<mask>"])


def test_documents_are_parted_by_empty_lines(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("\n one\ntwo \n\n\nthree\n\n", encoding="utf-8")
    assert read_documents(path).documents == ["one\ntwo", "three"]
    assert read_documents(path).paragraphs == ["one", "two", "three"]
    assert read_documents(path, 1).documents == ["one"]
    path.write_text("\n\n", encoding="utf-8")
    with pytest.raises(DataError, match="has no text"):
        read_documents(path)


def test_line_feeds_are_tokens_and_come_back(mask_tokenizer: Tokenizer) -> None:
    text = "The dog sleeps.\nThe cat\n\neats."
    ids = mask_tokenizer.encode(text)
    assert ids.count(mask_tokenizer.token_id("\n")) == 3
    assert mask_tokenizer.decode(ids) == text


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_packing_loses_no_token(mask_tokenizer: Tokenizer, size: int) -> None:
    end = mask_tokenizer.token_id(EOS)
    ids = pack(DOCUMENTS, mask_tokenizer)
    wanted = [token for document in DOCUMENTS for token in (*mask_tokenizer.encode(document), end)]
    assert list(ids) == wanted
    rows = blocks(ids, size, end)
    assert [token for row in rows for token in row[1:]] == wanted
    assert [len(row) for row in rows[:-1]] == [size + 1] * (len(rows) - 1)
    assert [row[0] for row in rows] == [end, *(row[-1] for row in rows[:-1])]


def test_every_token_of_a_pass_is_a_label_once(tmp_path: Path, mask_tokenizer: Tokenizer) -> None:
    trainer = text_trainer(text_config(CausalLmConfig()), tmp_path, mask_tokenizer, DOCUMENTS)
    ids = pack(DOCUMENTS, mask_tokenizer)
    counts: Counter[int] = Counter()
    num_labels = 0
    for batch in trainer.plan.batches(0):
        counts.update(batch.labels[batch.labels != 0].tolist())
        num_labels += trainer.objective.num_labels(batch)
        if num_labels >= len(ids):
            break
    assert counts == Counter(ids)


def test_a_decoder_learns_to_copy_a_pattern(tmp_path: Path) -> None:
    words = ["dog", "cat", "house", "tree"]
    generator = np.random.default_rng(0)
    pairs = [generator.choice(words, 2, replace=False) for _ in range(3040)]
    documents = [f"{first} {second} {first} {second}" for first, second in pairs]
    config = text_config(
        CausalLmConfig(),
        32,
        model={"d_model": 32, "d_ff": 64, "max_seq_len": 32, "num_decoder_layers": 2},
        optimizer={"learning_rate": 5e-3, "schedule": "constant", "warmup_steps": 10},
        average_decay=0.9,
        max_batch_tokens=512,
        max_steps=180,
    )
    trainer = text_trainer(config, tmp_path, train(words, 320), documents[40:])
    trainer.objective.dev = {"new": TextFile(Path("new.txt"), documents[:40])}
    before = evaluate_text(trainer.checkpoint(), documents[:40])
    trainer.run(Progress())
    final = load_checkpoint(tmp_path / "final")
    after = evaluate_text(final, documents[:40])
    assert (after.num_tokens, after.num_words) == (5 * 40, 4 * 40)
    # The first word is one of four and the second one of three; the others, and the end, follow from them.
    assert after.per_word < 1.2 * 12 ** (1 / 4)
    assert before.per_word > 100
    for prompt, answer in (("tree cat tree", "cat"), ("cat tree cat", "tree"), ("dog house dog", "house")):
        ids = [final.config.eos_id, *final.tokenizer.encode(prompt)]
        logits = final.model.project(final.model(torch.tensor([ids])))[0, -1]
        assert final.tokenizer.decode([int(logits.argmax())]) == answer
    assert final.metadata["task"] == "generate"
    assert final.metadata["training"]["scores"]["new"]["word_perplexity"] == pytest.approx(after.per_word, abs=1e-3)


def test_windows_tell_each_token_once_with_its_context(tmp_path: Path, tokenizer: Tokenizer) -> None:
    trainer = text_trainer(
        text_config(CausalLmConfig(), 8, model={"max_seq_len": 8}), tmp_path, tokenizer, [PAIRS[0][0]]
    )
    checkpoint = trainer.checkpoint()
    ids = tokenizer.encode(" ".join(pair[0] for pair in PAIRS))[:29]
    whole = [checkpoint.config.eos_id, *ids]
    results = token_log_probs(checkpoint, ids, max_batch_tokens=20)
    for index in range(len(ids)):
        # The first window tells eight tokens; each after it the last four of its eight.
        start = 0 if index < 8 else 4 * (index // 4 - 1)
        with torch.no_grad():
            logits = checkpoint.model.project(checkpoint.model(torch.tensor([whole[start : index + 1]])))
        assert results[index] == pytest.approx(float(logits[0, -1].log_softmax(-1)[ids[index]]), abs=1e-5)


def test_perplexity_is_exp_of_the_mean_by_token_and_by_word(tmp_path: Path, tokenizer: Tokenizer) -> None:
    trainer = text_trainer(text_config(CausalLmConfig()), tmp_path, tokenizer, DOCUMENTS)
    result = evaluate_text(trainer.checkpoint(), DOCUMENTS)
    total = -float(token_log_probs(trainer.checkpoint(), pack(DOCUMENTS, tokenizer)).sum())
    assert result.num_words == 8 + 2 + 8
    assert result.num_tokens == len(pack(DOCUMENTS, tokenizer))
    assert result.per_token == pytest.approx(math.exp(total / result.num_tokens))
    assert result.per_word == pytest.approx(math.exp(total / 18))


def test_hidden_tokens_are_80_10_10(tmp_path: Path, mask_tokenizer: Tokenizer) -> None:
    trainer = text_trainer(text_config(MaskedLmConfig()), tmp_path, mask_tokenizer, DOCUMENTS)
    objective = trainer.objective
    assert isinstance(objective, MaskedLm)
    end, mask = mask_tokenizer.token_id(EOS), mask_tokenizer.token_id("<mask>")
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
            assert hidden[index] not in mask_tokenizer.special_ids - {mask}
    assert 40 not in places
    assert min(places.values()) > 0.8 * 300
    shares = {kind: count / 12000 for kind, count in kinds.items()}
    assert shares == pytest.approx({"mask": 0.8, "other": 0.1, "same": 0.1}, abs=0.015)
    assert sum(map(bool, objective.hide([7, end], generator)[1])) == 1


def test_masked_batches_are_weighted_by_their_hidden_tokens(tmp_path: Path, mask_tokenizer: Tokenizer) -> None:
    config = text_config(MaskedLmConfig(masked_share=0.3), max_batch_tokens=64)
    trainer = text_trainer(config, tmp_path, mask_tokenizer, DOCUMENTS)
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


def test_a_vocabulary_without_the_mask_is_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(TokenizerError, match="no token '<mask>'"):
        text_trainer(text_config(MaskedLmConfig()), tmp_path, tokenizer, DOCUMENTS)
    text_trainer(text_config(MaskedLmConfig(mask_token="<unk>")), tmp_path, tokenizer, DOCUMENTS)


def test_masked_text_may_be_pairs(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("a\tb\nc\td\n", encoding="utf-8")
    notes: list[str] = []
    file = MaskedLm.read(TrainSource("pairs.tsv"), text_config(MaskedLmConfig()), tmp_path, notes.append)
    assert file.paragraphs == ["a", "b", "c", "d"]
    assert notes == ["pairs.tsv: 4 paragraphs"]
    assert MaskedLm.read_dev(DevSource("pairs.tsv", 1), tmp_path).paragraphs == ["a", "b"]


@pytest.mark.parametrize("kind", [CausalLmConfig(), MaskedLmConfig(), ContrastiveConfig()], ids=lambda kind: kind.kind)
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(
    tmp_path: Path, mask_tokenizer: Tokenizer, kind: Any
) -> None:
    def trainer(name: str) -> Trainer:
        if isinstance(kind, ContrastiveConfig):
            return make_trainer(training_config(objective=kind, model=ENCODER), tmp_path / name, mask_tokenizer)
        return text_trainer(text_config(kind, max_batch_tokens=48), tmp_path / name, mask_tokenizer, DOCUMENTS * 3)

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


def test_blocks_reach_across_documents(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    trainer = text_trainer(
        text_config(CausalLmConfig(), 1000, model={"max_seq_len": 1000}, max_batch_tokens=1000),
        tmp_path,
        tokenizer,
        DOCUMENTS,
    )
    assert isinstance(trainer.objective, CausalLm)
    batch = next(trainer.plan.batches(0))
    end = tokenizer.token_id(EOS)
    assert batch.input_ids.shape[0] == 1
    assert batch.labels[0].tolist().count(end) == 3
    assert batch.input_ids[0, 0] == end
    assert torch.equal(batch.input_ids[0, 1:], batch.labels[0, :-1])
