"""Creates the ResourceClaimTemplates that Pods name by their size, and deletes unused ones.

kube-controller-manager creates the claim of a Pod as soon as the template exists
(pkg/controller/resourceclaim in k8s.io/kubernetes).

Each namespace is served by itself, and has a limited number of templates. So Pods that name
thousands of sizes, or a slow admission webhook, do not delay those of other namespaces.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import structlog

from partita.constants import (
    ANNOTATION_MEMORY,
    ANNOTATION_PARTITION,
    ANNOTATION_THREADS,
    CAPACITY_MEMORY,
    CAPACITY_THREADS,
    PART_OF,
)
from partita.kube.client import CLAIM_TEMPLATES, Kube
from partita.kube.errors import (
    AlreadyExistsError,
    KubernetesError,
)
from partita.kube.events import Events
from partita.models import GPUPartition
from partita.models.device_class import device_class_of
from partita.models.template_name import TemplateName
from partita.store.state import State
from partita.store.views import PodView

__all__ = ["MOST", "ClaimTemplates", "build_claim_template", "partition_for"]

Json = dict[str, Any]

MOST: Final = 100
"""Templates of one namespace. An assumption: programs need fewer sizes."""
_CONCURRENT: Final = 8
"""Maximum number of concurrent requests. An assumption: more would delay allocations."""


@dataclass
class ClaimTemplates:
    """The only writer of templates whose names `TemplateName` can read.

    A template of such a name that a user has created is left alone.
    """

    kube: Kube
    state: State
    events: Events

    def __post_init__(self) -> None:
        self._changed = asyncio.Event()
        self._asking: dict[str, dict[str, dict[str, PodView]]] = {}
        """Names of the templates that each namespace lacks, and the Pods that name them, by UID."""
        self._existing: dict[str, set[str]] = {}
        """Names of the templates by namespace."""
        self._expired: dict[str, dict[str, str]] = {}
        """UIDs of the templates to delete, by namespace and name."""
        self._unused_since: dict[str, float] = {}
        """Time since which no Pod names a template, by UID of the template."""
        self._served: set[str] = set()
        """The namespaces in which templates are being created or deleted."""
        self._slots = asyncio.Semaphore(_CONCURRENT)
        self._log = structlog.get_logger().bind(part="templates")

    def pod_changed(self, uid: str) -> None:
        """Note that a Pod may wait for a template."""
        pod = self.state.pods.get(uid)
        if pod is not None and self._ask(pod):
            self._changed.set()

    def _ask(self, pod: PodView) -> bool:
        """Note which templates a Pod lacks; return whether it lacks any."""
        missing = _missing(pod)
        for name in missing:
            lacks = self._asking.setdefault(pod.namespace, {})
            lacks.setdefault(name, {})[pod.uid] = pod
        return bool(missing)

    async def run(self) -> NoReturn:
        """Create and delete templates until cancelled."""
        self._served.clear()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._check())
            while True:
                await self._changed.wait()
                self._changed.clear()
                both = *self._expired.items(), *self._asking.items()
                for namespace in {one for one, names in both if names} - self._served:
                    self._served.add(namespace)
                    group.create_task(self._serve(namespace))

    async def _check(self) -> NoReturn:
        """Look again and again at all Pods, and then at all templates."""
        while True:
            self._asking = {}
            for pod in self.state.pods.values():
                self._ask(pod)
            self._changed.set()
            await self._find_expired(asyncio.get_running_loop().time())
            self._changed.set()
            await asyncio.sleep(self.kube.times.check_templates)

    async def _serve(self, namespace: str) -> None:
        """Delete what a namespace does not need, then create what it lacks, one by one."""
        try:
            while True:
                async with self._slots:
                    if expired := self._expired.get(namespace):
                        await self._delete(namespace, *expired.popitem())
                    elif lacks := self._asking.get(namespace):
                        await self._create_next(namespace, lacks)
                    else:
                        return
                await self.kube.turns.next()
        finally:
            self._served.discard(namespace)

    async def _create_next(self, namespace: str, lacks: dict[str, dict[str, PodView]]) -> None:
        """Create one of the templates that a namespace lacks."""
        name = next(iter(lacks))
        pods = lacks.pop(name)
        problem = await self._create(name, namespace)
        for pod in pods.values() if problem else ():
            self.events.warn(pod.subject, "NoClaimTemplate", problem)

    async def _create(self, text: str, namespace: str) -> str:
        """Create a template; return why that is not possible, or empty."""
        if (name := TemplateName.parse(text)) is None:
            return "" if await self._is_there(text, namespace) else TemplateName.problem(text)
        found = partition_for(name, namespace, self.state)
        if isinstance(found, str):
            return found
        existing = self._existing.get(namespace, set())
        if text in existing:
            return ""
        if len(existing) >= MOST:
            return (
                f"namespace {namespace} has {MOST} ResourceClaimTemplates of Partita already, one "
                "for each size that its Pods have named: let Pods name the same sizes, or delete "
                "templates that none needs"
            )
        try:
            await self.kube.create(CLAIM_TEMPLATES, build_claim_template(name, found, namespace))
        except AlreadyExistsError:
            return ""
        except KubernetesError as error:
            return f"ResourceClaimTemplate {name} cannot be created: {error.message}"
        self._existing.setdefault(namespace, set()).add(text)  # all were listed meanwhile
        self._log.info("created", namespace=namespace, template=text)
        return ""

    async def _is_there(self, name: str, namespace: str) -> bool:
        """Return whether a user has created a template of this name."""
        own = f"metadata.name={name}"
        try:
            listed, _ = await self.kube.list(
                CLAIM_TEMPLATES, namespace=namespace, field_selector=own
            )
        except KubernetesError:
            return True  # it is asked again soon
        return bool(listed)

    async def _delete(self, namespace: str, name: str, uid: str) -> None:
        with suppress(KubernetesError):  # it is gone, or this is tried again soon
            await self.kube.delete(CLAIM_TEMPLATES, name, namespace, uid=uid)

    async def _find_expired(self, now: float) -> None:
        own = ",".join(f"{key}={value}" for key, value in PART_OF.items())
        try:
            listed, _ = await self.kube.list(CLAIM_TEMPLATES, label_selector=own)
        except KubernetesError:
            return  # the kind is not served, or this is tried again soon
        self._existing, self._expired = {}, {}
        pods = (p for p in self.state.pods.values() if p.alive)
        used = {(p.namespace, claim.template) for p in pods for claim in p.workload.claims}
        unused: dict[str, float] = {}
        for one in listed:
            meta = one["metadata"]
            name, namespace, uid = meta["name"], meta["namespace"], meta["uid"]
            existing = self._existing.setdefault(namespace, set())
            existing.add(name)
            parsed = TemplateName.parse(name)
            if parsed is None:
                continue  # it has another purpose
            if (namespace, name) not in used:
                unused[uid] = self._unused_since.get(uid, now)
            expired = now - unused.get(uid, now) >= self.kube.times.unused_template
            if expired or not self._serves(one, parsed):
                self._expired.setdefault(namespace, {})[name] = uid
                existing.discard(name)
        self._unused_since = unused

    def _serves(self, template: Json, name: TemplateName) -> bool:
        """Return whether a template still names the device class that it should."""
        found = partition_for(name, template["metadata"]["namespace"], self.state)
        requests = (template["spec"]["spec"].get("devices") or {}).get("requests") or ()
        classes = [(one.get("exactly") or {}).get("deviceClassName") for one in requests]
        return not isinstance(found, str) and classes == [device_class_of(found.metadata.name)]


def _missing(pod: PodView) -> list[str]:
    """Return the names like those of the operator from which a Pod still waits for a claim."""
    claims = pod.workload.claims if pod.alive else ()
    names = (claim.template for claim in claims if not claim.claim)
    return [name for name in names if TemplateName.parse(name) or TemplateName.problem(name)]


def partition_for(name: TemplateName, namespace: str, state: State) -> GPUPartition | str:
    """Return the partition for which a template is, or why there is none.

    Without a partition in the name, it is the only one that serves the namespace.
    """
    partitions = {n: p for n, p in state.partitions.items() if not p.metadata.deletion_timestamp}
    existing = ", ".join(sorted(partitions)) or "none"
    if name.partition:
        return partitions.get(name.partition) or (
            f"GPUPartition {name.partition} does not exist (existing: {existing}): write another "
            f"one in the annotation {ANNOTATION_PARTITION} of the Pod"
        )
    view = state.namespaces.get(namespace)
    labels = view.labels if view is not None else {}
    serving = [
        partition
        for partition in partitions.values()
        if partition.spec.allowed_namespaces is None
        or partition.spec.allowed_namespaces.matches(labels)
    ]
    if len(serving) == 1:
        return serving[0]
    if not serving:
        return (
            f"no GPUPartition serves namespace {namespace} (existing: {existing}): "
            "ask an administrator for one"
        )
    names = ", ".join(sorted(partition.metadata.name for partition in serving))
    return (
        f"namespace {namespace} can use several partitions ({names}): write one in the annotation "
        f"{ANNOTATION_PARTITION} of the Pod"
    )


def build_claim_template(name: TemplateName, partition: GPUPartition, namespace: str) -> Json:
    """Return the template of this name.

    Before Kubernetes 1.36 the API server drops the capacity. So the same amounts are annotations,
    which kube-controller-manager copies to each claim.
    """
    amounts = {CAPACITY_MEMORY: str(name.memory)}
    annotations = {ANNOTATION_MEMORY: str(name.memory)}
    if name.threads is not None:
        amounts[CAPACITY_THREADS] = annotations[ANNOTATION_THREADS] = str(name.threads)
    exactly = {
        "deviceClassName": device_class_of(partition.metadata.name),
        "capacity": {"requests": amounts},
    }
    return {
        "metadata": {
            "name": str(name),
            "namespace": namespace,
            "labels": PART_OF,
            "ownerReferences": [partition.owner_reference()],
        },
        "spec": {
            "metadata": {"annotations": annotations},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        },
    }
