"""The training loop: teacher forcing, resumed from its last checkpoint whenever it is started again."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from model.checkpoint import Checkpoint, save_checkpoint
from model.config import ModelConfig
from model.evaluation import score, translate_texts
from model.tokenizer import Tokenizer
from model.training import resume
from model.training.batches import Batch, BatchPlan, split
from model.training.config import TrainingConfig
from model.training.optimizers import build_optimizers, rate, set_rate
from model.training.reports import Metrics, Progress
from model.transformer import Transformer

DevSets = Mapping[str, Sequence[tuple[str, str]]]


class Trainer:
    """One run in one folder: `run` starts it or takes it up where it was left."""

    def __init__(
        self,
        config: TrainingConfig,
        folder: Path,
        tokenizer: Tokenizer,
        plan: BatchPlan,
        dev_sets: DevSets,
        device: torch.device,
    ) -> None:
        self.config, self.folder, self.tokenizer = config, folder, tokenizer
        self.plan, self.dev_sets, self.device = plan, dev_sets, device
        torch.manual_seed(config.seed)
        model_config = ModelConfig.from_dict({**config.model, "vocab_size": tokenizer.vocab_size})
        self.model = Transformer(model_config).to(device)
        self.average = Transformer(model_config).to(device).eval().requires_grad_(False)
        self.average.load_state_dict(self.model.state_dict())
        self.optimizers = build_optimizers(self.model, config.optimizer, device)
        self.step = 0
        self.seconds = 0.0
        self.loss = torch.compile(self._loss, dynamic=True) if config.compile else self._loss
        self.workers = _workers(device)
        self.metrics = Metrics(folder)

    def run(self, progress: Progress) -> None:
        """Train to `max_steps`; evaluates and saves as it goes, and once more at the end."""
        resume.load(self)
        last_save = last_tick = time.monotonic()
        if self.step >= self.config.max_steps:
            progress.note(f"already at step {self.step} of {self.config.max_steps}")
            return
        for batch in self.plan.batches(self.step):
            loss, norm = self.train_step(batch.to(self.device))
            now = time.monotonic()
            self.seconds += now - last_tick
            last_tick = now
            num_tokens = int((batch.labels != self.plan.pad_id).sum())
            self.metrics.step(self.step, loss, num_tokens)
            progress.step(self.step, self.config.max_steps, loss, num_tokens, float(norm))
            is_last = self.step >= self.config.max_steps
            if is_last or self.step % self.config.evaluate_every_steps == 0:
                self.evaluate(progress)
                last_tick = time.monotonic()
            if is_last or time.monotonic() - last_save > self.config.save_every_seconds:
                resume.save(self)
                last_save = last_tick = time.monotonic()
            if is_last:
                break
        save_checkpoint(self.checkpoint(), self.folder / "final")

    def train_step(self, batch: Batch) -> tuple[float, Tensor]:
        """One update; returns the loss per label (nats, smoothing included) and the gradient's norm before clipping."""
        self.model.train()
        set_rate(self.optimizers, rate(self.step, self.config.optimizer, self.config.max_steps))
        loss = self._accumulate_gradients(batch)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.config.optimizer.max_gradient_norm)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.step += 1
        self._update_average()
        return loss, norm

    def _accumulate_gradients(self, batch: Batch) -> float:
        """Set the gradients of the batch, computed in parts; the parts are added in their order, so the sum is repeatable."""
        parts = split(batch, self.config.micro_batch_tokens)
        num_labels = (batch.labels != self.plan.pad_id).sum()
        parameters = list(self.model.parameters())

        def gradients(part: Batch) -> tuple[Tensor, tuple[Tensor, ...]]:
            loss = self.loss(part) / num_labels
            return loss.detach(), torch.autograd.grad(loss, parameters)

        results = self.workers.map(gradients, parts) if self.workers else map(gradients, parts)
        total, sums = next(results)
        for loss, more in results:
            total += loss
            torch._foreach_add_(sums, more)
        for parameter, gradient in zip(parameters, sums, strict=True):
            parameter.grad = gradient
        return float(total)

    def _loss(self, batch: Batch) -> Tensor:
        """The label-smoothed cross-entropy, summed over the batch's labels."""
        with self._autocast():
            states = self.model(batch.input_ids, batch.source_ids, batch.source_lengths)
            real = batch.labels != self.plan.pad_id
            logits = self.model.project(states[real])
        return smoothed_cross_entropy(logits.float(), batch.labels[real], self.config.label_smoothing)

    def _autocast(self) -> AbstractContextManager[Any]:
        wanted = self.config.autocast == "bf16" or (self.config.autocast == "auto" and has_fast_bf16(self.device))
        return torch.autocast(self.device.type, torch.bfloat16) if wanted else nullcontext()

    @torch.no_grad()
    def _update_average(self) -> None:
        # Early weights are far from the late ones, so the window opens with the number of steps.
        decay = min(self.config.average_decay, (1 + self.step) / (10 + self.step))
        averages, values = list(self.average.parameters()), list(self.model.parameters())
        torch._foreach_lerp_(averages, values, 1 - decay)

    def checkpoint(self) -> Checkpoint:
        """The averaged model with its description."""
        first, second = self.config.data.languages
        metadata = {
            **self.config.metadata,
            "name": self.config.name,
            "task": "translate",
            "languages": [first, second],
            "directions": [[first, second], [second, first]],
            "training": {
                "steps": self.step,
                "hours": round(self.seconds / 3600, 2),
                "data": [{"path": s.path, "weight": s.weight, "licence": s.licence} for s in self.config.data.train],
                "scores": self.metrics.last_scores,
            },
        }
        return Checkpoint(self.average, self.tokenizer, metadata)

    def evaluate(self, progress: Progress) -> None:
        """Greedy BLEU and chrF of the averaged weights on every development set, in both directions."""
        checkpoint = self.checkpoint()
        first, second = self.config.data.languages
        for name, pairs in self.dev_sets.items():
            for source, target, column in ((first, second, 0), (second, first, 1)):
                hypotheses = translate_texts(checkpoint, [pair[column] for pair in pairs], target)
                result = score(hypotheses, [pair[1 - column] for pair in pairs])
                self.metrics.score(self.step, f"{name} {source}-{target}", result.bleu, result.chrf)
                progress.note(f"step {self.step}: {name} {source}-{target} BLEU {result.bleu:.2f} chrF {result.chrf:.2f}")
        self.metrics.save()


def smoothed_cross_entropy(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Label-smoothed cross-entropy (Szegedy et al. 2016, https://arxiv.org/abs/1512.00567), in nats, summed over labels.

    `logits` (N,V) are used up: the backward pass turns them into their own gradient.
    """
    return _SmoothedCrossEntropy.apply(logits, labels, smoothing)  # type: ignore[no-any-return]


class _SmoothedCrossEntropy(torch.autograd.Function):
    """One pass forward and one back over the largest tensor of a step, which PyTorch's own loss crosses seven times."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
        log_sums = logits.logsumexp(-1, keepdim=True)
        label_logits = logits.gather(-1, labels[:, None])
        ctx.save_for_backward(logits, labels, log_sums)
        ctx.smoothing = smoothing
        likelihood = (log_sums - label_logits).sum()
        return (1 - smoothing) * likelihood + smoothing * (log_sums.sum() - logits.mean(-1).sum())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        logits, labels, log_sums = ctx.saved_tensors
        change = logits.detach().sub_(log_sums).exp_().sub_(ctx.smoothing / logits.shape[-1])
        labelled = torch.full((len(labels), 1), ctx.smoothing - 1, dtype=change.dtype, device=change.device)
        return change.scatter_add_(-1, labels[:, None], labelled).mul_(gradient), None, None


def _workers(device: torch.device) -> ThreadPoolExecutor | None:
    """On a processor each core computes a part of the batch by itself: that needs no barrier after every small product,
    which costs little on idle cores and very much beside other work."""
    if device.type != "cpu" or torch.get_num_threads() == 1:
        return None
    return ThreadPoolExecutor(torch.get_num_threads(), initializer=torch.set_num_threads, initargs=(1,))


def has_fast_bf16(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 in hardware; a processor without it emulates, several times slower."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" and torch.cpu._is_avx512_bf16_supported()
