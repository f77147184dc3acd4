"""Applications for `partita advise`, from ApplicationProfiles (files, cluster) or workloads."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from partita.cli.options import Cluster
from partita.cli.terminal import UserError, warn
from partita.models import ApplicationProfile
from partita.models.errors import describe
from partita.models.profile import Measurement, application_hash
from partita.store.application_profiles import to_profile
from partita.validation.yaml_documents import Document, read_documents
from partita_policies.simulator.tasks import allocation_for
from partita_policies.types import GPU
from partita_research.advise import Subject
from partita_research.cli.messages import SHOWN, few
from partita_research.simulator.products import MAX_JOBS
from partita_research.simulator.workloads import (
    STUDY_WORKLOADS,
    InputError,
    Workload,
    read_workload,
    study_workload,
)

__all__ = ["Applications", "from_cluster", "from_sources"]


@dataclass(slots=True)
class Applications:
    """Profiles and workloads of applications, and the GPUs on which they ran."""

    resources: list[ApplicationProfile] = field(default_factory=list)
    workloads: list[Workload] = field(default_factory=list)

    def gpus(self, reserve_percent: int) -> list[GPU]:
        """Return one GPU of each product in the measurements and workloads.

        Parameters
        ----------
        reserve_percent
            Percent subtracted from the memory of GPUs from measurements. The memory of GPUs from
            workloads is allocatable as a whole.
        """
        found: dict[str, GPU] = {}
        for workload in self.workloads:
            for gpu in workload.gpus:
                found.setdefault(gpu.product, gpu)
        for resource in self.resources:
            for measurement in resource.spec.measurements:
                where = measurement.environment
                if where.memory and where.product not in found:
                    found[where.product] = GPU(
                        id=where.product,
                        node=where.node,
                        memory=where.memory * (100 - reserve_percent) // 100,
                        max_jobs=MAX_JOBS,
                        product=where.product or "GPU",
                        sm_count=where.sm_count,
                        pcie_bandwidth=where.pcie_bandwidth,
                    )
        return list(found.values())

    def subjects(self, gpu: GPU) -> list[Subject]:
        """Return the applications with their profiles for a GPU, measured on its product if any."""
        found: dict[str, Subject] = {}
        measured: dict[str, tuple[str, Measurement]] = {}
        for resource in self.resources:
            measurement = resource.spec.measurement(gpu.product)
            if measurement is None:
                continue
            namespace, name = resource.metadata.namespace, resource.spec.application
            key = application_hash(namespace, name)
            if any(name == known for known, _ in measured.values()):
                name = f"{namespace}/{name}"
            measured[key] = name, measurement
        neighbours = {key: (name, to_profile(name, one)) for key, (name, one) in measured.items()}
        for name, measurement in measured.values():
            profile = to_profile(name, measurement, neighbours.get)
            found[name] = Subject(profile, allocation_for(profile, gpu.memory))
        for workload in self.workloads:
            for task in workload.tasks:
                profile = task.job.profile or task.truth.profile()
                known = found.get(profile.application)
                memory = max(task.job.memory, known.memory if known else 0)
                found[profile.application] = Subject(profile, memory)
        return list(found.values())


def from_sources(sources: Iterable[str]) -> Applications:
    """Read files of ApplicationProfiles, workload files, and workloads of the study by name.

    Raises
    ------
    UserError
        A source cannot be read, or no source contains an application.
    """
    found = Applications()
    for source in sources:
        if source in STUDY_WORKLOADS:
            found.workloads.append(study_workload(source))
            continue
        path = Path(source)
        try:
            content = path.read_bytes()
        except OSError as error:
            names = ", ".join(STUDY_WORKLOADS)
            raise UserError(
                f"{path} cannot be read: {error.strerror}; name a file, or one of {names}"
            ) from error
        if any("kind" in document.value for document in _mappings(content)):
            found.resources += _checked(source, content)
        else:
            try:
                found.workloads.append(read_workload(path))
            except InputError as error:
                raise UserError(str(error)) from error
    return _some(found, "the files")


async def from_cluster(cluster: Cluster, namespace: str | None) -> Applications:
    """Read the ApplicationProfiles of a cluster.

    Parameters
    ----------
    namespace
        Namespace of the profiles; None for all that may be listed.

    Raises
    ------
    UserError
        The cluster cannot be read, or has no ApplicationProfiles with a measurement.
    """
    from partita.cli.cluster_state import list_visible
    from partita.cli.connection import open_cluster
    from partita.kube.client import PROFILES
    from partita.kube.connect import current_namespace

    async with open_cluster(*cluster) as kube:
        if namespace is not None:
            items, _ = await kube.list(PROFILES, namespace=namespace)
        else:
            own = current_namespace(*cluster)
            items, missing = await list_visible(kube, PROFILES, own, {PROFILES})
            if missing:
                warn(f"Not all is advised on: you may not list {missing}.")
                namespace = own
    found = Applications()
    for body in items:
        where, name = body["metadata"]["namespace"], body["metadata"]["name"]
        try:
            found.resources.append(ApplicationProfile.parse(body))
        except ValidationError as error:
            raise UserError(f"ApplicationProfile {where}/{name}: {describe(error)}") from error
    return _some(found, f"namespace {namespace}" if namespace else "the cluster")


def _some(found: Applications, where: str) -> Applications:
    measured = [one for one in found.resources if one.spec.measurements]
    if len(measured) < len(found.resources):
        names = [one.spec.application for one in found.resources if one not in measured]
        warn(f"{few(names)}: nothing is measured yet; left out")
    if not measured and not found.workloads:
        raise UserError(
            f"there is no ApplicationProfile with a measurement in {where}: run the applications "
            "once, or name a workload file"
        )
    return Applications(measured, found.workloads)


def _mappings(content: bytes) -> Iterator[Document]:
    """Yield the documents of a file that are mappings."""
    for document in read_documents(content):
        if isinstance(document, Document) and isinstance(document.value, dict):
            yield document


def _checked(source: str, content: bytes) -> list[ApplicationProfile]:
    """Return the ApplicationProfiles in a file of resources."""
    from partita.validation.files import check_files

    errors = [str(error) for error in check_files([(source, content)]).errors]
    if errors:
        more = f" (and {len(errors) - SHOWN} more)" if len(errors) > SHOWN else ""
        raise UserError("\n".join(errors[:SHOWN]) + more)
    found: list[ApplicationProfile] = []
    for document in _mappings(content):
        listed = "items" in document.value
        found.extend(
            ApplicationProfile.parse(body)
            for body in (document.value["items"] if listed else [document.value])
            if body["kind"] == "ApplicationProfile"
        )
    return found
