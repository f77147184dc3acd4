"""Checkpoints of a training, as safetensors.

A resumed training has the same result as one without interruption. A checkpoint contains no code,
so files from untrusted sources are safe to read.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from partita_policies.dqn.configuration import Training
from partita_policies.dqn.observation import FEATURE_VERSION
from partita_research.training.learning import DQNLearner
from partita_research.training.trainer import Point, Trainer

__all__ = ["CheckpointError", "load", "save"]

_KIND = f"partita-training-{FEATURE_VERSION}"


class CheckpointError(Exception):
    """A checkpoint cannot be read, or is of another training; the message names the file."""


def save(trainer: Trainer, path: Path) -> None:
    """Write a checkpoint atomically, between two iterations."""
    learner, progress = trainer.learner, trainer.progress
    parts: dict[str, torch.Tensor] = {}
    for name, part in learner.network.state_dict().items():
        parts[f"network.{name}"] = part.detach().cpu().clone()
    for name, part in trainer.best.items():
        parts[f"best.{name}"] = part.clone()
    for number, state in learner.optimiser.state_dict()["state"].items():
        for name, part in state.items():
            parts[f"optimiser.{number}.{name}"] = part.detach().cpu().clone()
    if isinstance(learner, DQNLearner):
        for name, part in learner.target.state_dict().items():
            parts[f"target.{name}"] = part.detach().cpu().clone()
        for name, array in learner.replay.dump().items():
            parts[f"replay.{name}"] = torch.from_numpy(np.ascontiguousarray(array))
    parts["known"] = torch.from_numpy(trainer.known)
    metadata = {
        "kind": _KIND,
        "training": trainer.training.model_dump_json(),
        "random": json.dumps(trainer.random.bit_generator.state),
        "progress": json.dumps(
            {
                "iteration": progress.iteration,
                "decisions": progress.decisions,
                "loss": progress.loss,
                "best": progress.best,
                "curve": progress.curve,
            }
        ),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = path.with_suffix(".part")
    save_file(parts, whole, metadata)
    whole.replace(path)


def load(trainer: Trainer, path: Path) -> None:
    """Restore a training from a checkpoint.

    Parameters
    ----------
    trainer
        A new trainer with the same settings and workloads.
    path
        The checkpoint.

    Raises
    ------
    CheckpointError
        The checkpoint cannot be read, or has other settings.
    """
    training, metadata, parts = _read(path)
    if training != trainer.training:
        raise CheckpointError(f"checkpoint {path}: it is of a training with other settings")
    learner, progress = trainer.learner, trainer.progress
    learner.network.load_state_dict(_under(parts, "network."))
    trainer.best = _under(parts, "best.")
    state: dict[int, dict[str, torch.Tensor]] = {}
    for name, part in _under(parts, "optimiser.").items():
        number, _, what = name.partition(".")
        state.setdefault(int(number), {})[what] = part
    groups = learner.optimiser.state_dict()["param_groups"]
    learner.optimiser.load_state_dict({"state": state, "param_groups": groups})
    if isinstance(learner, DQNLearner):
        learner.target.load_state_dict(_under(parts, "target."))
        replay = _under(parts, "replay.")
        learner.replay.load({name: part.numpy() for name, part in replay.items()})
    trainer.known = parts["known"].numpy().copy()
    trainer.random.bit_generator.state = json.loads(metadata["random"])
    noted: dict[str, Any] = json.loads(metadata["progress"])
    progress.iteration, progress.decisions = noted["iteration"], noted["decisions"]
    progress.loss, progress.best = noted["loss"], noted["best"]
    progress.curve = [Point(*point) for point in noted["curve"]]


def _read(path: Path) -> tuple[Training, dict[str, str], dict[str, torch.Tensor]]:
    try:
        with safe_open(path, "pt") as file:
            metadata: dict[str, str] = file.metadata() or {}
            if metadata.get("kind") != _KIND:
                raise CheckpointError(
                    f"checkpoint {path}: its kind is {metadata.get('kind')!r}; expected {_KIND!r}"
                )
            parts = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return Training.model_validate_json(metadata["training"]), metadata, parts
    except (OSError, SafetensorError, KeyError, ValidationError) as error:
        raise CheckpointError(
            f"checkpoint {path}: {error}; expected one that `partita train` wrote"
        ) from error


def _under(parts: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {
        name.removeprefix(prefix): part for name, part in parts.items() if name.startswith(prefix)
    }
