import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from model.checkpoint import load_checkpoint
from model.data import DataError, TextFile, read_documents
from model.packing import blocks, pack
from model.perplexity import evaluate_text, token_log_probs
from model.tokenizer import EOS, Tokenizer, train
from model.training.config import (
    CausalLmConfig,
)
from model.training.objectives.causal_lm import CausalLm
from model.training.reports import Progress
from tests.model.samples import PAIRS, tiny_tokenizer
from tests.model.training.text_samples import DOCUMENTS, mask_tokenizer, text_config, text_trainer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return mask_tokenizer()


def test_documents_are_parted_by_empty_lines(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("\n one\ntwo \n\n\nthree\n\n", encoding="utf-8")
    assert read_documents(path).documents == ["one\ntwo", "three"]
    assert read_documents(path).paragraphs == ["one", "two", "three"]
    assert read_documents(path, 1).documents == ["one"]
    path.write_text("\n\n", encoding="utf-8")
    with pytest.raises(DataError, match="has no text"):
        read_documents(path)


def test_line_feeds_are_tokens_and_come_back(tokenizer: Tokenizer) -> None:
    text = "The dog sleeps.\nThe cat\n\neats."
    ids = tokenizer.encode(text)
    assert ids.count(tokenizer.token_id("\n")) == 3
    assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_packing_loses_no_token(tokenizer: Tokenizer, size: int) -> None:
    end = tokenizer.token_id(EOS)
    ids = pack(DOCUMENTS, tokenizer)
    wanted = [token for document in DOCUMENTS for token in (*tokenizer.encode(document), end)]
    assert list(ids) == wanted
    rows = blocks(ids, size, end)
    assert [token for row in rows for token in row[1:]] == wanted
    assert [len(row) for row in rows[:-1]] == [size + 1] * (len(rows) - 1)
    assert [row[0] for row in rows] == [end, *(row[-1] for row in rows[:-1])]


def test_every_token_of_a_pass_is_a_label_once(tmp_path: Path, tokenizer: Tokenizer) -> None:
    trainer = text_trainer(text_config(CausalLmConfig()), tmp_path, tokenizer, DOCUMENTS)
    ids = pack(DOCUMENTS, tokenizer)
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
