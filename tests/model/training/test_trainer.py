import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from model.checkpoint import CheckpointError, load_checkpoint
from model.data import read_pairs
from model.evaluation import translate_texts
from model.tokenizer import Tokenizer
from model.training import resume
from model.training import trainer as trainer_module
from model.training.batches import split
from model.training.config import DataConfig, TrainSource
from model.training.reports import Progress
from model.training.signals import Stopped
from model.training.trainer import Trainer, TrainingError
from tests.model.samples import PAIRS, make_trainer, tiny_tokenizer, training_config


def run(
    folder: Path, tokenizer: Tokenizer, prepare: Callable[[Trainer], None] = lambda trainer: None, **changes: Any
) -> Trainer:
    trainer = make_trainer(training_config(**changes), folder, tokenizer)
    prepare(trainer)
    trainer.run(Progress())
    return trainer


def everything(trainer: Trainer) -> dict[str, Tensor]:
    """All that a run is: weights, average, and the states of its optimizers."""
    state = {f"model.{name}": tensor for name, tensor in trainer.model.state_dict().items()}
    state |= {f"average.{name}": tensor for name, tensor in trainer.average.state_dict().items()}
    for index, optimizer in enumerate(trainer.optimizers):
        for number, values in optimizer.state_dict()["state"].items():
            state |= {f"optimizer.{index}.{number}.{name}": value for name, value in values.items()}
    return state


def assert_same(left: Trainer, right: Trainer) -> None:
    one, other = everything(left), everything(right)
    assert one.keys() == other.keys()
    different = [name for name in one if not torch.equal(one[name], other[name])]
    assert different == []


def stop_after(steps: int) -> Callable[[Trainer], None]:
    """Have SIGTERM come while the step of that number is computed."""

    def prepare(trainer: Trainer) -> None:
        train_step = trainer.train_step

        def step(batch: Any) -> tuple[float, float]:
            if trainer.step + 1 == steps:
                signal.raise_signal(signal.SIGTERM)
            return train_step(batch)

        trainer.train_step = step  # type: ignore[method-assign]

    return prepare


@pytest.fixture
def two_workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As on a machine with two idle cores, whatever this one has."""
    with ThreadPoolExecutor(2, initializer=torch.set_num_threads, initargs=(1,)) as workers:
        monkeypatch.setattr(trainer_module, "_workers", lambda device, dropout: workers)
        yield


PARTS = {"micro_batch_tokens": 60}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="muon"),
        pytest.param({"optimizer": {"kind": "adam", "schedule": "cosine"}}, id="adam"),
        pytest.param({"model": {"dropout": 0.3}, **PARTS}, id="dropout"),
    ],
)
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(
    tmp_path: Path, tokenizer: Tokenizer, changes: dict[str, Any]
) -> None:
    whole = run(tmp_path / "whole", tokenizer, **changes)
    with pytest.raises(Stopped, match="stopped by SIGTERM at step 4, and saved"):
        run(tmp_path / "parts", tokenizer, stop_after(4), **changes)
    torch.manual_seed(99)  # whatever the new process drew before
    assert_same(run(tmp_path / "parts", tokenizer, **changes), whole)


@pytest.mark.usefixtures("two_workers")
def test_so_does_one_with_workers(tmp_path: Path, tokenizer: Tokenizer) -> None:
    test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(tmp_path, tokenizer, PARTS)


def test_parts_of_a_batch_add_up_to_the_batch(
    tmp_path: Path, tokenizer: Tokenizer, request: pytest.FixtureRequest
) -> None:
    whole, parts = (make_trainer(training_config(**changes), tmp_path, tokenizer) for changes in ({}, PARTS))
    request.getfixturevalue("two_workers")
    threads = make_trainer(training_config(**PARTS), tmp_path, tokenizer)
    batches = whole.plan.batches(0)
    for batch in (next(batches), next(batches)):
        assert len(split(batch, PARTS["micro_batch_tokens"])) > 2
        results = [trainer.train_step(batch) for trainer in (whole, parts, threads)]
        assert results[1] == pytest.approx(results[0], rel=1e-3)
        assert results[2] == results[1]
    assert_same(parts, threads)


@pytest.mark.parametrize(("dropout", "has_workers"), [(0.0, True), (0.1, False)])
def test_dropout_keeps_the_parts_in_one_thread(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, dropout: float, has_workers: bool
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    trainer = make_trainer(training_config(model={"dropout": dropout}), tmp_path, tokenizer)
    assert (trainer.workers is not None) == has_workers


def test_twenty_pairs_are_learned_to_the_letter(tmp_path: Path) -> None:
    trainer = run(
        tmp_path,
        tiny_tokenizer(vocab_size=500),  # most words whole, so that the sentences are short
        model={"d_model": 64, "d_ff": 128},
        optimizer={"learning_rate": 5e-3, "schedule": "constant", "warmup_steps": 10, "cooldown_steps": 100},
        label_smoothing=0.0,
        average_decay=0.9,
        max_batch_tokens=200,
        max_steps=200,
    )
    english, german = [pair[0] for pair in PAIRS], [pair[1] for pair in PAIRS]
    final = load_checkpoint(tmp_path / "final")
    assert final.metadata["training"]["steps"] == trainer.step == 200
    assert translate_texts(final, english, ("en", "de")) == german
    # Not with beams: four worse hypotheses that end early stop the search before the right one has ended.
    assert translate_texts(final, german, ("de", "en")) == english


def test_the_loss_falls_on_real_text(tmp_path: Path, data_folder: Path) -> None:
    pairs = read_pairs(data_folder / "translate-en-de" / "tatoeba-short.tsv.xz").pairs[:600]
    config = training_config(max_steps=60, max_batch_tokens=600, optimizer={"learning_rate": 1e-2})
    trainer = make_trainer(config, tmp_path, tiny_tokenizer(pairs, 600), pairs)
    trainer.run(Progress())
    losses = [row.loss for row in trainer.metrics.losses]
    assert len(losses) == 3
    assert losses[2] < losses[1] < losses[0]
    assert losses[2] < losses[0] - 0.7


def test_a_run_can_be_extended_and_a_finished_one_is_left_alone(
    tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = run(tmp_path / "whole", tokenizer, max_steps=9)
    run(tmp_path / "parts", tokenizer, max_steps=5)
    assert load_checkpoint(tmp_path / "parts" / "final").metadata["training"]["steps"] == 5
    extended = run(tmp_path / "parts", tokenizer, max_steps=9)
    assert_same(extended, whole)
    again = run(tmp_path / "parts", tokenizer, max_steps=9)
    assert "already at step 9 of 9" in capsys.readouterr().err
    assert_same(again, whole)


def test_a_run_can_be_shortened_to_where_it_stands(tmp_path: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(Stopped):
        run(tmp_path, tokenizer, stop_after(6), max_steps=9)
    assert not (tmp_path / "final").exists()
    shortened = run(tmp_path, tokenizer, max_steps=4, optimizer={"cooldown_steps": 2}, final_dtype="float16")
    assert shortened.step == 6
    final = load_checkpoint(tmp_path / "final")
    assert final.metadata["training"]["steps"] == 6
    assert final.dtype == torch.float16
    assert torch.equal(final.model.final_bias, shortened.average.final_bias.half().float())


def data(*sources: TrainSource) -> dict[str, Any]:
    return {"data": DataConfig(("en", "de"), sources, (), 64)}


def test_positions_in_the_data_follow_the_files_when_the_mix_changes(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trainer(*sources: TrainSource) -> Trainer:
        made = make_trainer(training_config(**data(TrainSource("pairs.tsv"))), tmp_path, tokenizer)
        config = training_config(**data(*sources))
        made.config, made.plan.streams = config, [made.plan.streams[0]] * len(sources)
        made.plan.round_start = [0] * len(sources)
        return made

    first = trainer(TrainSource("a.tsv"), TrainSource("b.tsv"), TrainSource("c.tsv"))
    first.plan.round_start, first.plan.round = [10, 20, 30], 3
    resume.save(first)
    second = trainer(TrainSource("c.tsv", weight=0.5), TrainSource("new.tsv", from_step=3), TrainSource("a.tsv"))
    resume.load(second)
    assert second.plan.round_start == [30, 0, 10]
    assert second.plan.round == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"d_ff": 48}}, "was trained with model = .*'d_ff': 32.* now says .*'d_ff': 48"),
        ({"seed": 2}, "seed = 1, the configuration now says 2"),
        ({"optimizer": {"kind": "adam"}}, "optimizer.kind = muon, the configuration now says adam"),
        ({"data": DataConfig(("de", "en"), (TrainSource("pairs.tsv"),), (), 64)}, r"data.languages = \['en', 'de'\]"),
    ],
)
def test_what_the_weights_depend_on_may_not_change(
    tmp_path: Path, tokenizer: Tokenizer, changes: dict[str, Any], message: str
) -> None:
    run(tmp_path, tokenizer, max_steps=1)
    with pytest.raises(CheckpointError, match=message):
        run(tmp_path, tokenizer, max_steps=2, **changes)


def test_a_damaged_state_is_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    run(tmp_path, tokenizer, max_steps=1)
    (tmp_path / "last" / resume.STATE_FILE).write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match="last cannot be read"):
        run(tmp_path, tokenizer, max_steps=2)


@pytest.fixture
def heard_interrupts() -> Iterator[None]:
    """A process that was started in the background of a shell may have SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard_interrupts")
def test_a_second_signal_is_not_held_back(tmp_path: Path, tokenizer: Tokenizer) -> None:
    def prepare(trainer: Trainer) -> None:
        def step(batch: Any) -> tuple[float, float]:
            signal.raise_signal(signal.SIGINT)  # in this thread, so that it is handled here and now
            signal.raise_signal(signal.SIGINT)  # in this thread, so that it is handled here and now
            raise AssertionError("not reached")

        trainer.train_step = step  # type: ignore[method-assign]

    with pytest.raises(KeyboardInterrupt) as caught:
        run(tmp_path, tokenizer, prepare)
    assert not isinstance(caught.value, Stopped)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_loss_that_is_no_number_stops_the_run_before_it_is_saved(tmp_path: Path, tokenizer: Tokenizer) -> None:
    def prepare(trainer: Trainer) -> None:
        with torch.no_grad():
            trainer.model.final_bias[7] = torch.nan

    with pytest.raises(TrainingError, match=r"at step 1 the loss is nan .* lower the learning rate"):
        run(tmp_path, tokenizer, prepare)
    assert not (tmp_path / "last").exists()


def test_the_average_trails_the_weights(tmp_path: Path, tokenizer: Tokenizer) -> None:
    trainer = make_trainer(training_config(average_decay=0.5), tmp_path, tokenizer)
    before = trainer.average.final_bias.clone()
    batches = trainer.plan.batches(0)
    wanted = before
    for step in range(1, 6):
        trainer.train_step(next(batches))
        decay = min(0.5, (1 + step) / (10 + step))
        wanted = decay * wanted + (1 - decay) * trainer.model.final_bias.detach()
    torch.testing.assert_close(trainer.average.final_bias, wanted)


def test_bfloat16_gives_nearly_the_same_step(tmp_path: Path, tokenizer: Tokenizer) -> None:
    exact, fast = (make_trainer(training_config(autocast=kind), tmp_path, tokenizer) for kind in ("off", "bf16"))
    batch = next(exact.plan.batches(0))
    assert fast.train_step(batch) == pytest.approx(exact.train_step(batch), rel=0.02)


@pytest.mark.parametrize("is_fast", [True, False])
def test_auto_is_bfloat16_where_it_is_fast(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, is_fast: bool
) -> None:
    monkeypatch.setattr(trainer_module, "has_fast_bf16", lambda device: is_fast)
    chosen, wanted = (
        make_trainer(training_config(autocast=kind), tmp_path, tokenizer)
        for kind in ("auto", "bf16" if is_fast else "off")
    )
    batch = next(chosen.plan.batches(0))
    assert chosen.train_step(batch) == wanted.train_step(batch)


def test_a_resumed_run_says_where_it_goes_on(
    tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Stopped):
        run(tmp_path, tokenizer, stop_after(4))
    assert "resumed" not in capsys.readouterr().err
    run(tmp_path, tokenizer)
    assert "resumed at step 4" in capsys.readouterr().err


def test_the_share_of_the_matrix_rate_counts_the_products_of_the_step(tmp_path: Path, tokenizer: Tokenizer) -> None:
    trainer = run(tmp_path, tokenizer, max_steps=1)
    matrices = sum(parameter.numel() for parameter in trainer.model.parameters() if parameter.ndim == 2)
    assert trainer.operations_per_position is not None
    # Six for each entry of a matrix: forward once and back twice, each a multiplication and an addition. Padding, whose
    # logits nobody computes, makes it fewer, and the products of attention more.
    assert 3 * matrices < trainer.operations_per_position < 9 * matrices
