"""What a run leaves behind, and how the next start takes it up: weights, average, optimizers, data position, random state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file
from torch import Tensor

from model.checkpoint import Checkpoint, CheckpointError, save_checkpoint

if TYPE_CHECKING:
    from model.training.trainer import Trainer

STATE_FILE = "training.safetensors"


def last_checkpoint(folder: Path) -> Path | None:
    """The run's newest whole checkpoint; a writer that was killed between two renames leaves the one before."""
    for name in ("last", "last.old"):
        if (folder / name / STATE_FILE).is_file():
            return folder / name
    return None


def save(trainer: Trainer) -> None:
    """Write the run's state to `last/`, whose model is the raw one (the average is in the state)."""
    tensors: dict[str, Tensor] = {f"average.{name}": t for name, t in trainer.average.state_dict().items()}
    tensors["random_state"] = torch.get_rng_state()
    names = {id(parameter): name for name, parameter in trainer.model.named_parameters()}
    for index, optimizer in enumerate(trainer.optimizers):
        for parameter, state in optimizer.state.items():
            tensors |= {f"optimizer.{index}.{names[id(parameter)]}.{key}": value for key, value in state.items()}
    metadata = trainer.checkpoint().metadata
    metadata["resume"] = {
        "step": trainer.step,
        "seconds": trainer.seconds,
        "plan": trainer.plan.state(),
        "config": trainer.config.to_dict(),
    }
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_checkpoint(Checkpoint(trainer.model, trainer.tokenizer, metadata), trainer.folder / "last", {STATE_FILE: contiguous})
    trainer.metrics.save()


def load(trainer: Trainer) -> None:
    """Take up the last checkpoint, if there is one; CheckpointError if it is of another run."""
    folder = last_checkpoint(trainer.folder)
    if folder is None:
        return
    state = json.loads((folder / "metadata.json").read_text("utf-8"))["resume"]
    config = json.loads(json.dumps(trainer.config.to_dict()))
    for name in ("model", "tokenizer", "seed"):
        if config[name] != state["config"][name]:
            raise CheckpointError(
                f"{folder} was trained with {name} = {state['config'][name]}, the configuration now says {config[name]}: "
                "restore it, or train in another folder"
            )
    trainer.model.load_state_dict(load_file(folder / "model.safetensors", device=str(trainer.device)))
    tensors = load_file(folder / STATE_FILE)
    prefix = "average."
    trainer.average.load_state_dict({n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)})
    parameters = dict(trainer.model.named_parameters())
    for name, tensor in tensors.items():
        if name.startswith("optimizer."):
            _, index, rest = name.split(".", 2)
            parameter_name, key = rest.rsplit(".", 1)
            value = tensor if key == "step" else tensor.to(trainer.device)
            trainer.optimizers[int(index)].state[parameters[parameter_name]][key] = value
    torch.set_rng_state(tensors["random_state"])
    trainer.step, trainer.seconds = state["step"], state["seconds"]
    trainer.plan.restore(state["plan"])
    trainer.metrics.load(trainer.step)
