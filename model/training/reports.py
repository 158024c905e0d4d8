"""What a run tells: a progress bar, metrics as CSV, and a curve as PNG."""

from __future__ import annotations

import csv
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

_LOSS_EVERY_STEPS = 20


class Progress:
    """A bar with loss, tokens a second and time left; where the output is no terminal, a line now and then."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, highlight=False)
        columns = (TextColumn("step"), MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
        self.bar = Bar(*columns, console=self.console, speed_estimate_period=120.0)
        self.task = self.bar.add_task("", total=None)
        self.loss: float | None = None
        self.tokens: list[tuple[float, int]] = []

    def __enter__(self) -> Progress:
        if self.console.is_terminal:
            self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.bar.stop()

    def note(self, text: str) -> None:
        self.console.print(text)

    def step(self, step: int, max_steps: int, loss: float, num_tokens: int, gradient_norm: float) -> None:
        self.loss = loss if self.loss is None else 0.95 * self.loss + 0.05 * loss
        self.tokens.append((self.bar.get_time(), num_tokens))
        self.tokens = self.tokens[-100:]
        seconds = self.tokens[-1][0] - self.tokens[0][0]
        speed = sum(count for _, count in self.tokens[1:]) / seconds if seconds else 0.0
        text = f"loss {self.loss:.3f}  {speed:.0f} tokens/s  gradient {gradient_norm:.2f}"
        self.bar.update(self.task, completed=step, total=max_steps, description=text)
        if not self.console.is_terminal and step % 50 == 0:
            left = (max_steps - step) * seconds / max(1, len(self.tokens) - 1)
            self.console.print(f"step {step}/{max_steps}  {text}  {left / 60:.0f} min left")


class Metrics:
    """The losses and scores of a run, in `losses.csv` and `scores.csv`, drawn as `curve.png`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.losses: list[tuple[int, float, int]] = []
        self.scores: list[tuple[int, str, float, float]] = []
        self._open: list[tuple[float, int]] = []

    @property
    def last_scores(self) -> dict[str, dict[str, float]]:
        """The newest score of each development set."""
        return {name: {"step": step, "bleu": round(bleu, 2), "chrf": round(chrf, 2)} for step, name, bleu, chrf in self.scores}

    def step(self, step: int, loss: float, num_tokens: int) -> None:
        self._open.append((loss, num_tokens))
        if step % _LOSS_EVERY_STEPS == 0:
            total = sum(tokens for _, tokens in self._open)
            self.losses.append((step, sum(loss * tokens for loss, tokens in self._open) / total, total))
            self._open = []

    def score(self, step: int, name: str, bleu: float, chrf: float) -> None:
        self.scores.append((step, name, bleu, chrf))

    def save(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        _write(self.folder / "losses.csv", ("step", "loss", "tokens"), self.losses)
        _write(self.folder / "scores.csv", ("step", "set", "bleu", "chrf"), self.scores)
        self._draw()

    def load(self, step: int) -> None:
        """Take up the rows of an earlier start, up to `step`."""
        losses, scores = _read(self.folder / "losses.csv"), _read(self.folder / "scores.csv")
        self.losses = [(int(a), float(b), int(c)) for a, b, c in losses if int(a) <= step]
        self.scores = [(int(a), b, float(c), float(d)) for a, b, c, d in scores if int(a) <= step]

    def _draw(self) -> None:
        # The object interface: no global figure, no display.
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8, 4.5), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        axes.plot([row[0] for row in self.losses], [row[1] for row in self.losses], color="tab:gray", label="loss")
        axes.set(xlabel="step", ylabel="training loss (nats per token)")
        right = axes.twinx()
        right.set_ylabel("BLEU, greedy")
        for name in dict.fromkeys(row[1] for row in self.scores):
            rows = [row for row in self.scores if row[1] == name]
            right.plot([row[0] for row in rows], [row[2] for row in rows], marker=".", label=name)
        figure.legend(loc="outside lower center", ncols=3)
        figure.savefig(self.folder / "curve.png", dpi=100, metadata={"Software": None})


def _write(path: Path, header: tuple[str, ...], rows: list[tuple[int, float, int]] | list[tuple[int, str, float, float]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows([[f"{cell:.4f}" if isinstance(cell, float) else cell for cell in row] for row in rows])


def _read(path: Path) -> list[list[str]]:
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))[1:]
