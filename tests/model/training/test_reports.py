import io
from pathlib import Path

import pytest
from rich.console import Console

from model.training.reports import Metrics, Progress

LONG = "docs-debian-web.tsv.xz: 722 pairs left out [longer than 100 tokens] " + "and so on, " * 9 + "to the end"


def test_lines_in_a_log_file_are_neither_wrapped_nor_marked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    with Progress() as progress:
        progress.note(LONG)
        progress.step(1, 200, 2.0, 50, 0.25)
    assert stream.getvalue().splitlines() == [LONG, "step 1/200  loss 2.000  gradient 0.25"]


def test_a_log_file_gets_the_first_step_the_last_and_one_each_half_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    progress = Progress(Console(file=stream, width=200))
    progress.matrix_rate = 1e6
    for step in range(1, 101):
        monkeypatch.setattr(progress.bar, "get_time", lambda now=step: float(now))
        progress.step(step, 100, 2.0, 50, 0.25, operations=4e5)
    lines = stream.getvalue().splitlines()
    assert [line.split("  ")[0] for line in lines] == [f"step {step}/100" for step in (1, 31, 61, 91, 100)]
    assert lines[1].split("  ")[1:] == [
        "loss 2.000",
        "50 tokens/s (40% of the matrix rate)",
        "gradient 0.25",
        "1 min left",
    ]


def test_a_terminal_gets_a_bar() -> None:
    stream = io.StringIO()
    with Progress(Console(file=stream, force_terminal=True, width=120)) as progress:
        progress.step(3, 10, 2.5, 50, 0.25)
    assert "3/10" in stream.getvalue()
    assert "loss 2.500" in stream.getvalue()


def run(metrics: Metrics, first: int, last: int) -> None:
    for step in range(first, last + 1):
        metrics.step(step, 10 / step, step)
        if step % 30 == 0:
            metrics.score(step, "dev en-de", {"bleu": step / 3, "chrf": 50.0})


def test_a_row_is_the_mean_over_the_labels_since_the_row_before(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path)
    run(metrics, 1, 20)
    [row] = metrics.losses
    assert row.step == 20
    assert row.tokens == sum(range(1, 21))
    assert row.loss == pytest.approx(20 * 10 / row.tokens)


def test_tables_of_a_resumed_run_are_those_of_an_uninterrupted_one(tmp_path: Path) -> None:
    whole, first, second = Metrics(tmp_path / "whole"), Metrics(tmp_path / "part"), Metrics(tmp_path / "part")
    run(whole, 1, 75)
    whole.save()
    run(first, 1, 33)
    pending = [list(row) for row in first.pending]  # what the checkpoint of step 33 keeps, as JSON gives it back
    run(first, 34, 65)  # lost, but for the tables
    first.save()
    second.load(33, pending)
    assert second.is_scored(30)
    assert not second.is_scored(33)
    run(second, 34, 75)
    second.save()
    for name in ("losses.csv", "scores.csv"):
        assert (tmp_path / "part" / name).read_text("utf-8") == (tmp_path / "whole" / name).read_text("utf-8")
    assert (tmp_path / "whole" / "scores.csv").read_text("utf-8").splitlines()[0] == "step,set,bleu,chrf"
    assert (tmp_path / "whole" / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert second.last_scores == {"dev en-de": {"step": 60, "bleu": 20.0, "chrf": 50.0}}
