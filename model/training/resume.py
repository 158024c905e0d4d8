"""What a run leaves behind for its next start: weights, average, optimizers, data position, random state.

Between two starts `max_steps`, the rates and the schedule, and the mix of the data (files, weights, when they join) may
change: the run goes on under the new ones. What the weights depend on may not, and is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from torch.optim import Optimizer

from model.checkpoint import Checkpoint, CheckpointError, save_checkpoint
from model.tokenizer import Tokenizer
from model.training.batches import BatchPlan
from model.training.config import TrainingConfig
from model.training.reports import Metrics
from model.transformer import Transformer

STATE_FILE = "training.safetensors"
_FIXED = ("model", "tokenizer", "seed", "data.languages", "optimizer.kind", "objective.kind")
_BEFORE_OBJECTIVES = {"objective": {"kind": "translation"}}
"""What a configuration meant that was kept before there were others."""


class Run(Protocol):
    """What is kept of a run, as the trainer has it."""

    config: TrainingConfig
    folder: Path
    tokenizer: Tokenizer
    model: Transformer
    average: Transformer
    optimizers: list[Optimizer]
    plan: BatchPlan
    metrics: Metrics
    device: torch.device
    step: int
    seconds: float
    init_metadata: dict[str, Any] | None

    def checkpoint(self) -> Checkpoint:
        """The averaged model with its description."""


def last_checkpoint(folder: Path) -> Path | None:
    """The run's newest whole checkpoint; a writer that was killed between two renames leaves the one before."""
    for name in ("last", "last.old"):
        if (folder / name / STATE_FILE).is_file():
            return folder / name
    return None


def save(run: Run) -> None:
    """Write the run's state to `last/`, whose model is the raw one (the average is in the state)."""
    tensors: dict[str, Tensor] = {f"average.{name}": t for name, t in run.average.state_dict().items()}
    tensors["random_state"] = torch.get_rng_state()
    if run.device.type == "cuda":
        tensors["cuda_random_state"] = torch.cuda.get_rng_state(run.device)
    names = {id(parameter): name for name, parameter in run.model.named_parameters()}
    for index, optimizer in enumerate(run.optimizers):
        for parameter, state in optimizer.state.items():
            tensors |= {f"optimizer.{index}.{names[id(parameter)]}.{key}": value for key, value in state.items()}
    checkpoint = Checkpoint(run.model, run.tokenizer, run.checkpoint().metadata)
    checkpoint.metadata["resume"] = {
        "step": run.step,
        "seconds": run.seconds,
        "plan": run.plan.state(),
        "pending_losses": run.metrics.pending,
        "config": run.config.to_dict(),
    }
    # The tables first: a run that is killed in between cuts them back to the older checkpoint's step.
    run.metrics.save()
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_checkpoint(checkpoint, run.folder / "last", {STATE_FILE: contiguous})


def load(run: Run) -> None:
    """Take up the last checkpoint, if there is one; CheckpointError if it is of another run or damaged."""
    folder = last_checkpoint(run.folder)
    if folder is None:
        return
    try:
        metadata = json.loads((folder / "metadata.json").read_text("utf-8"))
        state = metadata["resume"]
        weights = load_file(folder / "model.safetensors", device=str(run.device))
        tensors = load_file(folder / STATE_FILE)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise CheckpointError(f"{folder} cannot be read: {error}") from error
    _check(folder, _BEFORE_OBJECTIVES | state["config"], run.config.to_dict())
    run.model.load_state_dict(weights)
    _load_tensors(run, tensors)
    run.step, run.seconds = state["step"], state["seconds"]
    run.init_metadata = metadata["training"].get("init")
    # A file is known by its path; one that is new to the mix starts at its beginning.
    paths = [source["path"] for source in state["config"]["data"]["train"]]
    starts = dict(zip(paths, state["plan"]["round_start"], strict=True))
    round_start = [starts.get(source.path, 0) for source in run.config.data.train]
    state["plan"]["round_start"] = round_start
    run.plan.restore(state["plan"])
    run.metrics.load(run.step, state.get("pending_losses", ()))


def _check(folder: Path, saved: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    problems = []
    for name in _FIXED:
        before, now = _field(saved, name), _field(json.loads(json.dumps(config)), name)
        if before != now:
            problems.append(f"{name} = {before}, the configuration now says {now}")
    if problems:
        raise CheckpointError(
            f"{folder} was trained with {'; with '.join(problems)}: restore it, or train in another folder"
        )


def _field(config: Mapping[str, Any], name: str) -> Any:
    for part in name.split("."):
        config = config[part]
    return config


def _load_tensors(run: Run, tensors: Mapping[str, Tensor]) -> None:
    prefix = "average."
    run.average.load_state_dict({n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)})
    parameters = dict(run.model.named_parameters())
    for name, tensor in tensors.items():
        if name.startswith("optimizer."):
            _, index, rest = name.split(".", 2)
            parameter_name, key = rest.rsplit(".", 1)
            # Fused Adam counts its steps on the device, as it does everything else.
            run.optimizers[int(index)].state[parameters[parameter_name]][key] = tensor.to(run.device)
    torch.set_rng_state(tensors["random_state"])
    if run.device.type == "cuda" and "cuda_random_state" in tensors:
        torch.cuda.set_rng_state(tensors["cuda_random_state"], run.device)
