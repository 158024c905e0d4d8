"""The training loop, whatever is learned; resumed from its last checkpoint whenever it is started again."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from model.checkpoint import Checkpoint, save_checkpoint
from model.tokenizer import Tokenizer
from model.training import resume
from model.training.batches import BatchPlan, move, num_positions, split
from model.training.config import TrainingConfig
from model.training.init import take_weights
from model.training.objectives.base import Objective
from model.training.optimizers import build_optimizers, rate, set_rate
from model.training.reports import Metrics, Progress
from model.training.signals import Stopped, StopRequest
from model.training.speed import FlopCount, matrix_rate
from model.transformer import Transformer

_Gradients = Callable[[Any], tuple[Tensor, tuple[Tensor, ...]]]


class TrainingError(RuntimeError):
    """Training that cannot go on."""


class Trainer:
    """One run in one folder: `run` starts it or takes it up where it was left."""

    def __init__(
        self,
        config: TrainingConfig,
        folder: Path,
        tokenizer: Tokenizer,
        plan: BatchPlan,
        objective: Objective[Any, Any, Any],
        device: torch.device,
        initial: Checkpoint | None = None,
    ) -> None:
        self.config, self.folder, self.tokenizer = config, folder, tokenizer
        self.plan, self.objective, self.device = plan, objective, device
        torch.manual_seed(config.seed)
        model_config = config.transformer_config(tokenizer.vocab_size)
        self.model = Transformer(model_config)
        self.init_metadata = take_weights(self.model, initial, config) if initial else None
        """What a run that started from another checkpoint owes to it; kept with its own."""
        self.model.to(device)
        self.average = Transformer(model_config).to(device).eval().requires_grad_(False)
        self.average.load_state_dict(self.model.state_dict())
        self.workers = _workers(device, model_config.dropout)
        self.optimizers = build_optimizers(self.model, config.optimizer, self.workers)
        self.step = 0
        self.seconds = 0.0
        self.operations_per_position: float | None = None
        """Matrix operations of a step for each padded position of its batch, counted in the first step."""
        self.loss = torch.compile(self._loss, dynamic=True) if config.compile else self._loss
        self.metrics = Metrics(folder)

    def run(self, progress: Progress) -> None:
        """Train to `max_steps`, scoring and saving on the way; the averaged model ends up in `final/`.

        SIGTERM, SIGHUP and Ctrl-C save and raise Stopped after the step in hand.
        """
        resume.load(self)
        if self.step:
            progress.note(f"resumed at step {self.step}")
        if self.step < self.config.max_steps:
            with StopRequest() as stop:
                self._train(progress, stop)
        else:
            progress.note(f"already at step {self.step} of {self.config.max_steps}")
        if not self.metrics.is_scored(self.step):
            self.evaluate(progress)
        final = dataclasses.replace(self.checkpoint(), dtype=getattr(torch, self.config.final_dtype))
        save_checkpoint(final, self.folder / "final")

    def _train(self, progress: Progress, stop: StopRequest) -> None:
        progress.matrix_rate = self._matrix_rate()
        last_save = tick = time.monotonic()
        for batch in self.plan.batches(self.step):
            loss, norm = self.train_step(move(batch, self.device))
            num_labels = self.objective.num_labels(batch)
            self.metrics.step(self.step, loss, num_labels)
            operations = (self.operations_per_position or 0.0) * num_positions(batch)
            progress.step(self.step, self.config.max_steps, loss, num_labels, norm, operations)
            self.seconds += time.monotonic() - tick
            if self.step % self.config.evaluate_every_steps == 0:
                self.evaluate(progress)
            is_last, stopped_by = self.step >= self.config.max_steps, stop.signal_number
            is_due = time.monotonic() - last_save > self.config.save_every_seconds
            if is_last or is_due or stopped_by is not None:
                resume.save(self)
                last_save = time.monotonic()
            if is_last:
                return
            if stopped_by is not None:
                raise Stopped(stopped_by, self.step)
            tick = time.monotonic()

    def train_step(self, batch: Any) -> tuple[float, float]:
        """One update; returns the loss per label (nats, as it is minimised) and the gradient's norm before clipping."""
        self.model.train()
        set_rate(self.optimizers, rate(self.step, self.config.optimizer, self.config.max_steps))
        loss = self._set_gradients(batch)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.config.optimizer.max_gradient_norm)
        if not norm.isfinite():
            raise TrainingError(
                f"at step {self.step + 1} the loss is {loss:.3g} and its gradient's norm {norm.item():.3g}; the last "
                'save is whole: lower the learning rate, or set autocast = "off", and start again'
            )
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.step += 1
        self._update_average()
        return loss, norm.item()

    def _set_gradients(self, batch: Any) -> float:
        """Compute the gradients of a batch in parts, added in their order, so that the sum can be repeated."""
        parts = split(batch, self.config.micro_batch_tokens)
        num_labels = self.objective.num_labels(batch)
        parameters = list(self.model.parameters())

        def part_gradients(part: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
            loss = self.loss(part) / num_labels
            return loss.detach(), torch.autograd.grad(loss, parameters)

        gradients: _Gradients = part_gradients
        if self.operations_per_position is None and not self.config.compile:
            gradients = self._counted(gradients)
        results = self.workers.map(gradients, parts) if self.workers else map(gradients, parts)
        total, sums = next(results)
        with _threads(1 if self.workers else torch.get_num_threads()):  # the workers have the cores meanwhile
            for loss, more in results:
                total += loss
                torch._foreach_add_(sums, more)
        for parameter, gradient in zip(parameters, sums, strict=True):
            parameter.grad = gradient
        return total.item()

    def _loss(self, batch: Any) -> Tensor:
        with self._autocast():
            return self.objective.loss(self.model, batch)

    def _counted(self, gradients: _Gradients) -> _Gradients:
        """`gradients`, which counts the operations of its part too."""

        def counted(part: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
            with FlopCount() as count:
                result = gradients(part)
            self.operations_per_position = count.total / num_positions(part)
            return result

        return counted

    def _matrix_rate(self) -> float:
        config = self.model.config
        dtype = torch.bfloat16 if self._computes_in_bf16 else torch.float32
        return matrix_rate(config.d_model, config.d_ff, self.device, dtype, self.workers)

    @property
    def _computes_in_bf16(self) -> bool:
        return self.config.autocast == "bf16" or (self.config.autocast == "auto" and has_fast_bf16(self.device))

    def _autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, torch.bfloat16) if self._computes_in_bf16 else nullcontext()

    @torch.no_grad()
    def _update_average(self) -> None:
        # Early weights are far from the late ones, so the window opens with the number of steps.
        decay = min(self.config.average_decay, (1 + self.step) / (10 + self.step))
        averages: list[Tensor] = list(self.average.parameters())
        values: list[Tensor] = list(self.model.parameters())
        torch._foreach_lerp_(averages, values, 1 - decay)

    def checkpoint(self) -> Checkpoint:
        """The averaged model with its description."""
        metadata = {
            **self.config.metadata,
            "name": self.config.name,
            **self.objective.metadata(),
            "training": {
                "objective": self.config.objective.kind,
                "steps": self.step,
                "hours": round(self.seconds / 3600, 2),
                "data": [{"path": s.path, "weight": s.weight, "licence": s.licence} for s in self.config.data.train],
                "scores": self.metrics.last_scores,
                **({"init": self.init_metadata} if self.init_metadata else {}),
            },
        }
        return Checkpoint(self.average, self.tokenizer, metadata)

    def evaluate(self, progress: Progress) -> None:
        """Score the averaged weights on the development sets."""
        for name, values in self.objective.evaluate(self.checkpoint()):
            self.metrics.score(self.step, name, values)
            told = " ".join(f"{measure} {value:.4g}" for measure, value in values.items())
            progress.note(f"step {self.step}: {name} {told}")
        self.metrics.save()


def _workers(device: torch.device, dropout: float) -> ThreadPoolExecutor | None:
    """Threads that compute the parts of a batch side by side on a processor, each on one core.

    That needs no barrier after every small product, which costs little on idle cores and very much beside other work.
    With dropout the parts go one after the other: PyTorch draws from one generator for the whole process, and which
    part came first would decide who gets which numbers.
    """
    if device.type != "cpu" or torch.get_num_threads() == 1 or dropout:
        return None
    return ThreadPoolExecutor(torch.get_num_threads(), initializer=torch.set_num_threads, initargs=(1,))


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def has_fast_bf16(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 in hardware; a processor without it emulates, several times slower."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    # PyTorch has no public name for the question.
    return device.type == "cpu" and bool(torch.cpu._is_avx512_bf16_supported())  # noqa: SLF001
