"""What a run tells: a progress bar, metrics as CSV, and a curve as PNG."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

_LOSS_EVERY_STEPS = 20
_LINE_EVERY_SECONDS = 30.0
_SPEED_OVER_STEPS = 100


class Progress:
    """A bar with loss, tokens a second and time left; where the output is no terminal, a line now and then.

    "Tokens" are labels: what is predicted. With `matrix_rate`, operations a second that products of matrices alone
    reach, the share of it that training reaches is printed too.
    """

    def __init__(self, console: Console | None = None) -> None:
        # A terminal wraps by itself, and a log file is not to be cut at 80 columns.
        self.console = console or Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
        columns = (MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
        self.bar = Bar(TextColumn("step"), *columns, console=self.console, speed_estimate_period=120.0)
        self.task = self.bar.add_task("", total=None)
        self.loss: float | None = None
        self.matrix_rate = 0.0
        self.steps: list[tuple[float, int, float]] = []
        """When each of the last steps ended, its labels and its operations."""
        self.last_line = -math.inf

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.console.is_terminal:
            self.bar.stop()

    def note(self, text: str) -> None:
        """Print a line of text, above the bar where there is one."""
        self.console.print(text)

    def step(
        self, step: int, max_steps: int, loss: float, num_tokens: int, gradient_norm: float, operations: float = 0.0
    ) -> None:
        """Show one more step, which took `operations` in products of matrices; the loss shown is a moving average."""
        now = self.bar.get_time()
        self.loss = loss if self.loss is None else 0.95 * self.loss + 0.05 * loss
        self.steps = [*self.steps[1 - _SPEED_OVER_STEPS :], (now, num_tokens, operations)]
        seconds = now - self.steps[0][0]
        text = f"loss {self.loss:.3f}  {self._speed(seconds)}gradient {gradient_norm:.2f}"
        self.bar.update(self.task, completed=step, total=max_steps, description=text)
        if not self.console.is_terminal and (now - self.last_line >= _LINE_EVERY_SECONDS or step == max_steps):
            self.last_line = now
            left = f"  {(max_steps - step) * seconds / (len(self.steps) - 1) / 60:.0f} min left" if seconds else ""
            self.note(f"step {step}/{max_steps}  {text}{left}")

    def _speed(self, seconds: float) -> str:
        if not seconds:
            return ""  # the first step: nothing was timed yet
        tokens, operations = (sum(step[place] for step in self.steps[1:]) / seconds for place in (1, 2))
        share = f" ({operations / self.matrix_rate:.0%} of the matrix rate)" if self.matrix_rate and operations else ""
        return f"{tokens:.0f} tokens/s{share}  "


class Loss(NamedTuple):
    """The mean loss of the steps up to this one since the row before, in nats per label, and their number of labels.

    A label is what the objective predicts: a token, the end of a sentence, a sentence's partner. It is the loss that is
    minimised: of the weights in training, not of their average, with label smoothing and dropout.
    """

    step: int
    loss: float
    tokens: int


class ScoreRow(NamedTuple):
    """Scores of the averaged weights on one development set, by the name of the measure."""

    step: int
    set: str
    values: Mapping[str, float]


class Metrics:
    """The losses and scores of a run, in `losses.csv` and `scores.csv`, drawn as `curve.png`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.losses: list[Loss] = []
        self.scores: list[ScoreRow] = []
        self.pending: list[tuple[float, int]] = []
        """Loss and labels of each step since the last row of losses."""

    @property
    def last_scores(self) -> dict[str, dict[str, float]]:
        """The newest scores of each development set."""
        return {
            row.set: {"step": row.step, **{name: round(value, 4) for name, value in row.values.items()}}
            for row in self.scores
        }

    @property
    def measures(self) -> list[str]:
        """The names of what is measured, in the order in which they came."""
        return list(dict.fromkeys(name for row in self.scores for name in row.values))

    def step(self, step: int, loss: float, num_tokens: int) -> None:
        """Count one training step; a row is made of every twentieth and those before it."""
        self.pending.append((loss, num_tokens))
        if step % _LOSS_EVERY_STEPS == 0:
            total = sum(tokens for _, tokens in self.pending)
            self.losses.append(Loss(step, sum(loss * tokens for loss, tokens in self.pending) / total, total))
            self.pending = []

    def score(self, step: int, name: str, values: Mapping[str, float]) -> None:
        """Note the scores of one development set."""
        self.scores.append(ScoreRow(step, name, values))

    def is_scored(self, step: int) -> bool:
        """Whether the development sets were scored at this step."""
        return any(row.step == step for row in self.scores)

    def save(self) -> None:
        """Write both tables and the curve."""
        self.folder.mkdir(parents=True, exist_ok=True)
        _write(self.folder / "losses.csv", Loss._fields, self.losses)
        measures = self.measures
        rows = [(row.step, row.set, *(row.values.get(measure, "") for measure in measures)) for row in self.scores]
        _write(self.folder / "scores.csv", ("step", "set", *measures), rows)
        self._draw()

    def load(self, step: int, pending: Iterable[Sequence[float]]) -> None:
        """Take up the rows of an earlier start up to `step`: later ones belong to steps that will be made again."""
        losses, scores = _read(self.folder / "losses.csv"), _read(self.folder / "scores.csv")
        self.losses = [Loss(int(a), float(b), int(c)) for a, b, c in losses[1:] if int(a) <= step]
        measures = scores[0][2:] if scores else []
        self.scores = [
            ScoreRow(int(a), b, {name: float(cell) for name, cell in zip(measures, cells, strict=True) if cell})
            for a, b, *cells in scores[1:]
            if int(a) <= step
        ]
        self.pending = [(loss, int(tokens)) for loss, tokens in pending]

    def _draw(self) -> None:
        # The object interface: no global figure, no display.
        figure = Figure(figsize=(8, 4.5), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        axes.plot([row.step for row in self.losses], [row.loss for row in self.losses], color="tab:gray", label="loss")
        axes.set(xlabel="step", ylabel="training loss (nats per label)")
        right = axes.twinx()
        # The first measure of each set: what comes after it is there for the tables.
        firsts = {row.set: next(iter(row.values)) for row in self.scores}
        right.set_ylabel(", ".join(dict.fromkeys(firsts.values())))
        for name, measure in firsts.items():
            rows = [row for row in self.scores if row.set == name]
            right.plot([row.step for row in rows], [row.values[measure] for row in rows], marker=".", label=name)
        figure.legend(loc="outside lower center", ncols=3)
        figure.savefig(self.folder / "curve.png", dpi=100, metadata={"Software": None})


def _write(path: Path, header: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None:
    # Renamed into place, or a run killed here would find half a table when it is started again.
    partial = path.with_name(path.name + ".partial")
    with partial.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows([f"{cell:.4f}" if isinstance(cell, float) else cell for cell in row] for row in rows)
    partial.replace(path)


def _read(path: Path) -> list[list[str]]:
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))
