"""What `partita explain` is asked about: a job, or the Pods of a kind and name."""

from typing import Final, NamedTuple

import click

from partita.cli.options import JobName

__all__ = ["KINDS", "ExplainTarget"]

_NAMES: Final = {
    "SharedGPUJob": ("sharedgpujob", "sharedgpujobs", "sgj"),
    "Pod": ("pod", "pods", "po"),
    "ResourceClaim": ("resourceclaim", "resourceclaims", "claim", "claims"),
    "Deployment": ("deployment", "deployments", "deploy"),
    "StatefulSet": ("statefulset", "statefulsets", "sts"),
    "DaemonSet": ("daemonset", "daemonsets", "ds"),
    "ReplicaSet": ("replicaset", "replicasets", "rs"),
    "Job": ("job", "jobs"),
    "CronJob": ("cronjob", "cronjobs", "cj"),
    "JobSet": ("jobset", "jobsets"),
    "Rollout": ("rollout", "rollouts", "ro"),
    "Service": ("service", "services", "svc"),
    "PyTorchJob": ("pytorchjob", "pytorchjobs"),
    "RayCluster": ("raycluster", "rayclusters"),
    "Workflow": ("workflow", "workflows", "wf"),
    "CronWorkflow": ("cronworkflow", "cronworkflows", "cwf"),
}
KINDS: Final = {name: kind for kind, names in _NAMES.items() for name in names}
"""Kinds by the names that kubectl accepts for them."""


class ExplainTarget(NamedTuple):
    """One name on the command line."""

    kind: str
    """`SharedGPUJob`, which need not be written, `Pod`, `ResourceClaim`, or the kind of a
    controller."""
    name: JobName

    @property
    def is_job(self) -> bool:
        """Whether it is a SharedGPUJob."""
        return self.kind == "SharedGPUJob"

    @classmethod
    def read(cls, text: str, namespace: str | None) -> "ExplainTarget":
        """Parse `NAME`, `NAMESPACE/NAME` or `KIND/NAME` together with `--namespace`.

        Raises
        ------
        click.UsageError
            It names nothing, or two different namespaces.
        """
        kind, slash, name = text.partition("/")
        if slash and kind.lower() in KINDS:
            if not name or "/" in name:
                raise click.UsageError(
                    f"{text!r} names nothing: write {kind}/NAME, and the namespace with -n"
                )
            return cls(KINDS[kind.lower()], JobName(name, namespace))
        return cls("SharedGPUJob", JobName.read(text, namespace))
