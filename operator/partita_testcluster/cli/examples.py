"""The examples installed with Partita."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import partita
from partita.cli.terminal import UserError
from partita.models import GPUPartition, SharedGPUJob
from partita_policies.types import Sharing
from partita_testcluster.nodes.gpu import Work
from partita_testcluster.nodes.simulated_pods import parse_pod

__all__ = ["Examples", "load_examples", "load_workloads", "work_of"]

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Examples:
    """The objects of the example files, in the order in which to apply them."""

    before: tuple[Json, ...]
    """Namespaces, partitions and other objects that are not jobs."""
    jobs: tuple[Json, ...]
    partition: GPUPartition


def load_examples(policy: str | None = None) -> Examples:
    """Read the examples, from the source tree or from the installed package.

    Parameters
    ----------
    policy
        Replaces the active policy of the partition and its parameters.
    """
    objects = _read(_folder())
    before = [o for o in objects if o["kind"] != "SharedGPUJob"]
    partitions = [o for o in before if o["kind"] == "GPUPartition"]
    if policy is not None:
        for body in partitions:
            old = body["spec"].get("policy") or {}
            body["spec"]["policy"] = {"name": policy, "shadow": old.get("shadow", [])}
    jobs = [o for o in objects if o["kind"] == "SharedGPUJob"]
    return Examples(tuple(before), tuple(jobs), GPUPartition.parse(partitions[0]))


def load_workloads() -> tuple[Json, ...]:
    """Read the services, the batch Job and the jobs that share GPUs with them."""
    return tuple(_read(_folder() / "services"))


def _folder() -> Path:
    package = Path(partita.__file__).parent
    folders = (package / "examples", package.parents[1] / "examples")
    folder = next((folder for folder in folders if folder.is_dir()), None)
    if folder is None:
        raise UserError(f"there are no examples beside {package}: install Partita again")
    return folder


def _read(folder: Path) -> list[Json]:
    """Read the objects in the files of a folder, but not of the folders in it."""
    return [
        obj
        for file in sorted(folder.glob("*.yaml"))
        for obj in yaml.safe_load_all(file.read_text(encoding="utf-8"))
        if obj
    ]


def work_of(job: SharedGPUJob) -> Work:
    """Return the work of a job alone on a GPU, as simulated nodes read it."""
    template = job.spec.template.unpack()
    pod = {
        "metadata": {
            "uid": job.key,
            "namespace": job.metadata.namespace,
            "name": job.metadata.name,
            "annotations": template.annotations,
        },
        "spec": template.spec,
    }
    return parse_pod(pod).task(Sharing.EXCLUSIVE, 1).work
