import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from model.checkpoint import CheckpointError, load_checkpoint
from model.data import PairFile, ScoredFile
from model.embedding import embed_texts
from model.embedding_evaluation import retrieval_accuracy
from model.tokenizer import EOS, Tokenizer
from model.training.batches import split
from model.training.config import ContrastiveConfig, DevSource, InitConfig, TrainingConfig, TrainSource
from model.training.objectives.contrastive import Contrastive, PairBatch, info_nce, same_rows
from model.training.reports import Progress
from model.training.trainer import Trainer
from tests.model.samples import PAIRS, make_trainer, tiny_tokenizer, training_config

ENCODER = {"architecture": "encoder", "num_decoder_layers": 0}


def config(model: dict[str, Any] | None = None, **changes: Any) -> TrainingConfig:
    """A batch holds most of the twenty pairs, some of them more than once."""
    values = {"objective": ContrastiveConfig(), "max_batch_tokens": 2000} | changes
    return training_config(model=ENCODER | (model or {}), **values)


def unit_rows(count: int, seed: int) -> torch.Tensor:
    return normalize(torch.randn(count, 5, generator=torch.Generator().manual_seed(seed)), dim=-1)


def test_info_nce_is_its_formula() -> None:
    left, right, temperature = unit_rows(4, 0), unit_rows(4, 1), 0.1
    wanted = 0.0
    for one, other in ((left, right), (right, left)):
        for row in range(4):
            scores = [math.exp(float(one[row] @ other[column]) / temperature) for column in range(4)]
            wanted -= math.log(scores[row] / sum(scores)) / 2
    assert float(info_nce(left, right, temperature)) == pytest.approx(wanted, rel=1e-5)


def test_a_pair_with_the_same_sentence_is_no_negative() -> None:
    left, right = unit_rows(3, 0), unit_rows(3, 1)
    is_same = same_rows(torch.tensor([[7, 8], [7, 9], [7, 8]]))
    assert is_same.tolist() == [[True, False, True], [False, True, False], [True, False, True]]
    wanted = 0.0
    for one, other in ((left, right), (right, left)):
        for row, columns in enumerate(([0, 1], [0, 1, 2], [1, 2])):
            scores = {column: math.exp(float(one[row] @ other[column])) for column in columns}
            wanted -= math.log(scores[row] / sum(scores.values())) / 2
    assert float(info_nce(left, right, 1.0, is_same)) == pytest.approx(wanted, rel=1e-5)


def test_the_loss_reads_the_mean_of_real_tokens_and_no_padding(tmp_path: Path, tokenizer: Tokenizer) -> None:
    trainer = make_trainer(config(), tmp_path, tokenizer)
    left, right = torch.tensor([[5, 6, 2], [7, 2, 0]]), torch.tensor([[8, 9, 7, 2], [9, 2, 0, 0]])
    batch = PairBatch(left, torch.tensor([3, 2]), right, torch.tensor([4, 2]))

    def vectors(*rows: list[int]) -> torch.Tensor:
        one_by_one = [trainer.model.encode(torch.tensor([row]), torch.tensor([len(row)]))[0].mean(0) for row in rows]
        return normalize(torch.stack(one_by_one), dim=-1)

    wanted = info_nce(vectors([5, 6, 2], [7, 2]), vectors([8, 9, 7, 2], [9, 2]), 0.05)
    torch.testing.assert_close(trainer.objective.loss(trainer.model, batch), wanted)
    assert trainer.objective.num_labels(batch) == 2


def test_the_negatives_of_a_part_are_its_own(tmp_path: Path, tokenizer: Tokenizer) -> None:
    trainer = make_trainer(config(micro_batch_tokens=150), tmp_path, tokenizer)
    batch = next(trainer.plan.batches(0))
    parts = split(batch, 150)
    assert len(parts) > 1
    wanted = sum(trainer.objective.loss(trainer.model, part).item() for part in parts) / len(batch.left_ids)
    assert trainer.train_step(batch)[0] == pytest.approx(wanted, rel=1e-4)


def test_texts_end_as_the_tokenizer_file_says(tmp_path: Path, tokenizer: Tokenizer) -> None:
    prepared = Contrastive.prepare_tokenizer(tokenizer)
    end = tokenizer.token_id(EOS)
    assert (tokenizer.num_special_tokens, prepared.num_special_tokens) == (0, 1)
    assert Contrastive.prepare_tokenizer(prepared) is prepared
    prepared.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert [encoding.ids for encoding in loaded.encodings(["The dog"])] == [[*tokenizer.encode("The dog"), end]]
    assert loaded.encode("The dog") == tokenizer.encode("The dog")
    batch = next(make_trainer(config(), tmp_path, tokenizer).plan.batches(0))
    for ids, lengths in (batch[:2], batch[2:]):
        assert [row[length - 1] for row, length in zip(ids.tolist(), lengths.tolist(), strict=True)] == [end] * len(ids)


def test_pairs_are_learned(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"optimizer": {"learning_rate": 5e-3, "schedule": "constant"}, "average_decay": 0.9}
    tokenizer = tiny_tokenizer(vocab_size=500)
    trainer = make_trainer(config({"d_model": 32, "d_ff": 64}, max_steps=60, **changes), tmp_path, tokenizer)
    trainer.plan.round_examples = len(PAIRS)  # so that every pair meets every other
    before = retrieval_accuracy(trainer.checkpoint(), PAIRS)
    trainer.run(Progress())
    final = load_checkpoint(tmp_path / "final")
    assert max(before) < 0.5
    assert retrieval_accuracy(final, PAIRS) == (1.0, 1.0)
    assert final.metadata["task"] == "embed"
    assert final.metadata["embedding"] == {
        "pooling": "mean",
        "normalize": True,
        "prompts": {},
        "default_prompt_name": None,
        "max_input_tokens": 64,
    }
    assert final.metadata["training"]["objective"] == "contrastive"


def test_development_sets_are_told_apart_by_their_columns(tmp_path: Path, tokenizer: Tokenizer) -> None:
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS), encoding="utf-8")
    (tmp_path / "sts.tsv").write_text("".join(f"{i % 6}\t{a}\t{b}\n" for i, (a, b) in enumerate(PAIRS)), "utf-8")
    pairs = Contrastive.read_dev(DevSource("pairs.tsv", max_pairs=4), tmp_path)
    scored = Contrastive.read_dev(DevSource("sts.tsv"), tmp_path)
    assert isinstance(pairs, PairFile)
    assert isinstance(scored, ScoredFile)
    assert (len(pairs.pairs), len(scored.pairs)) == (4, 20)
    trainer = make_trainer(config(), tmp_path / "run", tokenizer)
    trainer.objective.dev = {"pairs": pairs, "sts": scored}
    scores = list(trainer.objective.evaluate(trainer.checkpoint()))
    assert [(row.set, list(row.values)) for row in scores] == [
        ("pairs en-de", ["accuracy"]),
        ("pairs de-en", ["accuracy"]),
        ("sts", ["spearman"]),
    ]


def test_scored_pairs_are_positives_from_their_min_score(tmp_path: Path) -> None:
    (tmp_path / "sts.tsv").write_text("4.0\ta\tb\n3.9\tc\td\n5\te\tf\nhigh\tg\th\n", encoding="utf-8")
    notes: list[str] = []
    source = TrainSource("sts.tsv", min_score=4.0)
    assert Contrastive.read(source, config(), tmp_path, notes.append).pairs == [("a", "b"), ("e", "f")]
    assert notes == ["sts.tsv: 2 pairs of score 4 and above, 1 lines left out (a score that is no number)"]


def translation_checkpoint(folder: Path, tokenizer: Tokenizer) -> Trainer:
    trainer = make_trainer(training_config(model={"num_encoder_layers": 3}, max_steps=2), folder, tokenizer)
    trainer.run(Progress())
    return trainer


def test_a_run_starts_from_another_checkpoints_encoder(tmp_path: Path, tokenizer: Tokenizer) -> None:
    translation_checkpoint(tmp_path / "first", tokenizer)
    initial = load_checkpoint(tmp_path / "first" / "final")
    changed = config({"num_encoder_layers": 2}, init=InitConfig("first", (0, 2)))
    trainer = make_trainer(changed, tmp_path / "second", initial.tokenizer, initial=initial)
    for model in (trainer.model, trainer.average):
        for layer, taken in zip(model.encoder_layers, (0, 2), strict=True):
            for name, weight in layer.state_dict().items():
                assert torch.equal(weight, initial.model.encoder_layers[taken].state_dict()[name]), name
        assert torch.equal(model.embedding.token.weight, initial.model.embedding.token.weight)
        for name, weight in model.encoder_norm.state_dict().items():
            assert torch.equal(weight, initial.model.encoder_norm.state_dict()[name])
    whole = trainer.checkpoint().metadata["training"]["init"]
    assert whole == {
        "name": "tiny",
        "encoder_layers": [0, 2],
        "data": [{"path": "pairs.tsv", "weight": 1.0, "licence": ""}],
    }
    trainer.run(Progress())
    resumed = make_trainer(changed, tmp_path / "second", initial.tokenizer)
    resumed.run(Progress())
    assert resumed.checkpoint().metadata["training"]["init"] == whole
    assert torch.equal(resumed.model.embedding.token.weight, trainer.model.embedding.token.weight)


@pytest.mark.parametrize(
    ("model", "layers", "message"),
    [
        ({"d_ff": 48}, (0, 1, 2), "d_ff is 32 there and 48 here"),
        (
            {"num_heads": 4, "activation": "gelu"},
            (0, 1, 2),
            "num_heads is 2 there and 4 here; activation is 'relu' there",
        ),
        ({}, (0, 1, 3), r"it has no encoder layers \[3\], allowed: 0 to 2"),
        ({"num_encoder_layers": 2}, (), "3 encoder layers would be taken, num_encoder_layers is 2: name them"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused(
    tmp_path: Path, tokenizer: Tokenizer, model: dict[str, Any], layers: tuple[int, ...], message: str
) -> None:
    initial = translation_checkpoint(tmp_path / "first", tokenizer).checkpoint()
    changed = config({"num_encoder_layers": 3} | model, init=InitConfig("first", layers))
    with pytest.raises(CheckpointError, match=f"cannot start from first: .*{message}"):
        make_trainer(changed, tmp_path / "second", tokenizer, initial=initial)


def test_vectors_are_the_same_alone_and_in_company(tmp_path: Path, tokenizer: Tokenizer) -> None:
    checkpoint = make_trainer(config(), tmp_path, tokenizer).checkpoint()
    texts = [text for pair in PAIRS for text in pair]
    together = embed_texts(checkpoint, texts, max_batch_tokens=100)
    alone = np.concatenate([embed_texts(checkpoint, [text]) for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-6)
    np.testing.assert_allclose((together**2).sum(1), 1.0, atol=1e-6)


def test_a_long_text_is_cut_before_its_end_token(tmp_path: Path, tokenizer: Tokenizer) -> None:
    checkpoint = make_trainer(config({"max_seq_len": 16}), tmp_path, tokenizer).checkpoint()
    long = "dog " * 50
    ids = [*tokenizer.encode(long)[:15], tokenizer.token_id(EOS)]
    states = checkpoint.model.encode(torch.tensor([ids]), torch.tensor([16]))[0]
    wanted = normalize(states.mean(0), dim=-1).detach().numpy()
    np.testing.assert_allclose(embed_texts(checkpoint, [long])[0], wanted, atol=1e-6)


def test_embeddings_of_another_task_are_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    checkpoint = make_trainer(training_config(), tmp_path, tokenizer).checkpoint()
    with pytest.raises(CheckpointError, match="the checkpoint's task is 'translate', embeddings need 'embed'"):
        embed_texts(checkpoint, ["a"])
