"""The fields of Pods with claims that are kept in memory: what their claims are resolved with."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from sys import intern
from typing import Any, Final, NamedTuple, Self

from partita.constants import ALLOCATION_GATE, GROUP
from partita.models.profile import application_name
from partita.models.quantities import parse_time
from partita.pods.container_ends import ContainerFailure, last_failure
from partita.pods.containers import users_of_entry
from partita.pods.node_requirements import Needs, needs_of

__all__ = ["PodClaim", "WorkloadPod", "application_of"]

Json = dict[str, Any]

_TEMPLATE_HASH: Final = "pod-template-hash"
_REVISIONS: Final = {_TEMPLATE_HASH: "Deployment", "rollouts-pod-template-hash": "Rollout"}
"""Labels with the hash of the template at the end of a ReplicaSet's name, and whose it is: of
Kubernetes, and of Argo Rollouts (`DefaultRolloutUniqueLabelKey` in argoproj/argo-rollouts)."""
_KNATIVE: Final = "serving.knative.dev/service"
"""Label of the Pods of all revisions of a Knative service
(https://knative.dev/docs/serving/services/)."""
_JOB_SET: Final = "jobset.sigs.k8s.io/jobset-name"
_REPLICATED_JOB: Final = "jobset.sigs.k8s.io/replicatedjob-name"
"""Labels of the Pods of a JobSet (kubernetes-sigs/jobset, api/jobset/v1alpha2/jobset_types.go)."""
_NAMED_BY_PEOPLE: Final = frozenset(
    {"DaemonSet", "Deployment", "ReplicaSet", "Rollout", "StatefulSet"}
)
"""Kinds of which one object lives as long as its application."""
_RANDOM: Final = re.compile(r"(-raycluster)?-[bcdfghjklmnpqrstvwxz2456789]{5}$")
"""What `generateName` and KubeRay append to a name (`alphanums` in k8s.io/apimachinery,
pkg/util/rand; `GenerateRayClusterName` in ray-project/kuberay)."""
_SCHEDULED: Final = re.compile(r"-(?:(?:2[6-9]|[3-9][0-9])[0-9]{6}|[1-9][0-9]{9})$")
"""What a schedule appends: minutes since the epoch, from 2019 on, as CronJobs (`getJobName` in
k8s.io/kubernetes, pkg/controller/cronjob), or seconds, as CronWorkflows (`getChildWorkflowName` in
argoproj/argo-workflows). A date such as 20261129 is below such a number of minutes."""
_SCHEDULES: Final = {"Job": "CronJob", "Workflow": "CronWorkflow"}


class PodClaim(NamedTuple):
    """A claim in `spec.resourceClaims` of a Pod."""

    claim: str
    """Name of the ResourceClaim; empty until it is made from the template."""
    template: str
    """Name of the ResourceClaimTemplate; empty if the Pod names a ResourceClaim itself."""
    users: int = 1
    """Containers that name it and run at the same time."""


@dataclass(frozen=True, slots=True)
class WorkloadPod:
    """A Pod with claims, or with Partita's scheduling gate, made by any controller or by hand."""

    claims: tuple[PodClaim, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Its annotations of Partita."""
    application: str = ""
    """Kind and name of what its runs have in common: the application if no annotation names one."""
    controller: str = ""
    """Kind and name of its controller; empty if it has none."""
    revision: str = ""
    """Hash of the template of its Deployment; empty if it has none."""
    created: datetime | None = None
    """When it was created; None if it has claims, which have times of their own."""
    priority: int = 0
    restarts_always: bool = False
    failure: ContainerFailure | None = None
    """How one of its containers failed last; None if none has."""
    needs: Needs = field(default_factory=Needs)
    """Its requirements on nodes."""

    @classmethod
    def parse(cls, body: Json) -> Self | None:
        """Read the claims of a Pod; None if it has neither claims nor Partita's gate."""
        spec = body.get("spec") or {}
        entries = spec.get("resourceClaims") or ()
        gates = spec.get("schedulingGates") or ()
        if not entries and all(gate["name"] != ALLOCATION_GATE for gate in gates):
            return None
        meta = body["metadata"]
        statuses = (body.get("status") or {}).get("resourceClaimStatuses") or ()
        made = {one["name"]: one.get("resourceClaimName") or "" for one in statuses}
        annotations = meta.get("annotations") or {}
        return cls(
            claims=tuple(
                PodClaim(
                    entry.get("resourceClaimName") or made.get(entry["name"], ""),
                    entry.get("resourceClaimTemplateName") or "",
                    users_of_entry(spec, entry["name"]),
                )
                for entry in entries
            ),
            annotations={
                intern(key): intern(value)
                for key, value in annotations.items()
                if key.startswith(f"{GROUP}/")
            },
            application=intern(application_of(meta)),
            controller=intern(controller_of(meta)),
            revision=intern((meta.get("labels") or {}).get(_TEMPLATE_HASH, "")),
            created=None if entries else parse_time(meta["creationTimestamp"]),
            priority=spec.get("priority") or 0,
            restarts_always=spec.get("restartPolicy", "Always") == "Always",
            failure=last_failure(body.get("status") or {}),
            needs=_needs(spec),
        )


def application_of(meta: Json) -> str:
    """Return the application of a Pod that names none: what its runs have in common.

    That is its controller or, of a controller with a generated name, what generates it: a CronJob,
    a Workflow without the end of its name, a Knative service. Otherwise the history of each run
    would be one of its own, from which no later run learns. Of a Pod without a controller it is the
    Pod. Names alone are read: the owners of owners are not in the Pod. They are assumed not to be
    chosen so that they look generated.
    """
    labels = meta.get("labels") or {}
    kind, _, name = controller_of(meta).partition("/")
    if service := labels.get(_KNATIVE):
        kind, name = "Service", service
    elif _JOB_SET in labels and kind == "Job":
        job_set = _RANDOM.sub("", labels[_JOB_SET])
        kind, name = "JobSet", f"{job_set}-{labels.get(_REPLICATED_JOB, '')}"
    elif not kind:
        prefix = meta.get("generateName") or ""
        generated = prefix and meta["name"].startswith(prefix)
        kind, name = "Pod", prefix.rstrip("-.") if generated else meta["name"]
    elif kind not in _NAMED_BY_PEOPLE:
        name, scheduled = _SCHEDULED.subn("", _RANDOM.sub("", name))
        kind = _SCHEDULES.get(kind, kind) if scheduled else kind
    return application_name(f"{kind}/{name}")


def controller_of(meta: Json) -> str:
    """Return kind and name of the controller of a Pod, such as `Deployment/serve`; empty if none.

    Pods of a Deployment are controlled by a ReplicaSet, whose name ends with the hash of the
    template (https://kubernetes.io/docs/concepts/workloads/controllers/deployment/).
    """
    owner = next((o for o in meta.get("ownerReferences") or () if o.get("controller")), None)
    if owner is None:
        return ""
    kind, name = owner["kind"], owner["name"]
    for label, owned_by in _REVISIONS.items():
        template = (meta.get("labels") or {}).get(label)
        if kind == "ReplicaSet" and template and name.endswith(f"-{template}"):
            return f"{owned_by}/{name.removesuffix(f'-{template}')}"
    return f"{kind}/{name}"


def _needs(spec: Json) -> Needs:
    try:
        return needs_of(spec)
    except ValueError as error:
        return Needs(problems=(str(error),))
