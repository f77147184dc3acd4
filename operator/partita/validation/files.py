"""Checks of resources in files by the rules of the CRDs and of the operator, and across files."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import ValidationError

from partita.constants import GROUP, VERSION
from partita.models import GPUPartition, SharedGPUJob
from partita.models.crd import RESOURCES
from partita.models.errors import describe
from partita.scheduling.request import Request, request_of_job
from partita.validation.claim_checks import claim_findings, is_claim, read_claim
from partita.validation.dry_run import create, partita_kind
from partita.validation.field_errors import Path
from partita.validation.job_checks import job_findings
from partita.validation.manifest_objects import (
    Finding,
    KnownObjects,
    ManifestObject,
    mapping,
    meant,
    text_of,
)
from partita.validation.workload_checks import asks_for_gpu, workload_findings
from partita.validation.yaml_documents import Document, Problem, read_documents
from partita_policies.errors import PolicyError, PolicyParametersError
from partita_policies.registry import load, parse_parameters

__all__ = ["Finding", "ValidationReport", "check_files", "read_requests"]

_RESOURCES: Final = {resource.kind: resource for resource in RESOURCES}
_API_VERSION: Final = f"{GROUP}/{VERSION}"


@dataclass(slots=True)
class ValidationReport:
    """The findings, in the order of files and lines."""

    files: int = 0
    checked: int = 0
    """Number of objects that were checked."""
    passed_over: int = 0
    """Number of other objects."""
    findings: list[Finding] = field(default_factory=list)

    @property
    def errors(self) -> list[Finding]:
        """The findings that must be corrected."""
        return [f for f in self.findings if not f.warning]

    @property
    def warnings(self) -> list[Finding]:
        """The findings that may be intended."""
        return [f for f in self.findings if f.warning]


def check_files(files: Iterable[tuple[str, bytes]]) -> ValidationReport:
    """Check the resources in files, first each separately and then against each other.

    Parameters
    ----------
    files
        Name and content of each file.
    """
    return read_requests(files)[0]


def read_requests(
    files: Iterable[tuple[str, bytes]],
) -> tuple[ValidationReport, list[tuple[ManifestObject, Request]]]:
    """Check the resources in files; return also what the jobs and Pods in them ask for."""
    report, known = ValidationReport(), KnownObjects()
    for name, content in files:
        report.files += 1
        for document in read_documents(content):
            if isinstance(document, Problem):
                report.findings.append(_unreadable(name, document))
                continue
            report.findings += [_unreadable(name, problem) for problem in document.problems]
            for found in _objects(name, document, (), document.value):
                _check(found, report, known)
    for found, job in known.jobs:
        report.findings += job_findings(found, job, known)
    for claim in known.claims:
        report.findings += claim_findings(claim, known)
    for found in known.workloads:
        if asks_for_gpu(found, known):
            report.checked += 1
            report.findings += workload_findings(found, known)
        else:
            report.passed_over += 1
    order = {name: i for i, name in enumerate(dict.fromkeys(f.file for f in report.findings))}
    report.findings.sort(key=lambda f: (order[f.file], f.line))
    jobs = [(found, request_of_job(job)) for found, job in known.jobs]
    return report, jobs + known.requests


def _unreadable(file: str, problem: Problem) -> Finding:
    return Finding("error", file, problem.line, "", "", "", "", problem.message)


def _objects(file: str, document: Document, base: Path, value: Any) -> Iterator[ManifestObject]:
    """Yield the objects of a document; a List contains several."""
    if not isinstance(value, dict):
        if value is not None:
            yield ManifestObject(file, document, base, {})
        return
    items = value.get("items")
    if value.get("kind") == "List" and isinstance(items, list) and len(base) == 0:
        for index, item in enumerate(items):
            yield from _objects(file, document, (*base, "items", index), item)
        return
    yield ManifestObject(file, document, base, value)


def _check(found: ManifestObject, report: ValidationReport, known: KnownObjects) -> None:
    body = found.body
    mistake = _mistaken(body)
    if mistake is not None:
        report.checked += 1
        report.findings.append(found.finding(*mistake))
        return
    if is_claim(body):
        report.checked += 1
        report.findings += read_claim(found, known)
        return
    if body.get("apiVersion") != _API_VERSION:
        _note_namespace(body, known)
        known.workloads.append(found)
        return
    report.checked += 1
    kind = _RESOURCES[body["kind"]]
    problems = list(create(found, partita_kind(kind.kind)))
    if not kind.namespaced and mapping(body["metadata"]).get("namespace"):
        said = f"a {kind.kind} belongs to no namespace: remove it"
        problems.append(found.finding(("metadata", "namespace"), said))
    report.findings += problems
    try:
        resource = kind.model.parse(body)
    except ValidationError as error:
        if not problems:  # otherwise they already describe it with the API server's messages
            place = tuple(error.errors(include_url=False)[0]["loc"])
            report.findings.append(found.finding(place, describe(error)))
        return
    if isinstance(resource, GPUPartition):
        known.partitions[resource.metadata.name].append(resource)
        report.findings += _policy_findings(found, resource)
    elif isinstance(resource, SharedGPUJob):
        known.jobs.append((found, resource))


def _mistaken(body: Mapping[str, Any]) -> tuple[Path, str] | None:
    """Return the error of an object that is intended for Partita but has a wrong kind or version.

    Return None if there is no such error.
    """
    version, kind = text_of(body.get("apiVersion")), text_of(body.get("kind"))
    group = version.partition("/")[0]
    if group == GROUP:
        if version != _API_VERSION:
            return ("apiVersion",), f"there is no {version or 'such version'}: write {_API_VERSION}"
        if kind not in _RESOURCES:
            there = ", ".join(sorted(_RESOURCES))
            return ("kind",), f"there is no kind {kind!r}{meant(kind, _RESOURCES, there)}"
    elif kind in _RESOURCES and (not version or "partita" in version):
        return ("apiVersion",), f"a {kind} has another one: write {_API_VERSION}"
    return None


def _note_namespace(body: Mapping[str, Any], known: KnownObjects) -> None:
    meta = mapping(body.get("metadata"))
    name = text_of(meta.get("name"))
    if name and (body.get("apiVersion"), body.get("kind")) == ("v1", "Namespace"):
        # The API server sets this label on every namespace.
        own = {"kubernetes.io/metadata.name": name}
        known.namespaces[name] = mapping(meta.get("labels")) | own


def _policy_findings(found: ManifestObject, partition: GPUPartition) -> Iterator[Finding]:
    policy, at = partition.spec.policy, ("spec", "policy")
    named: list[tuple[Path, str]] = [
        ((*at, "fallback"), policy.fallback),
        *(((*at, "shadow", i), name) for i, name in enumerate(policy.shadow)),
    ]
    for path, name in named:
        try:
            load(name)
        except PolicyError as error:
            yield found.finding(path, str(error))
    parameters = dict(policy.parameters)
    if policy.model is not None:
        parameters["model"] = policy.model
    try:
        parse_parameters(policy.name, load(policy.name), parameters)
    except PolicyParametersError as error:
        takes = "; ".join(error.allowed) or "no parameters"
        names = [allowed.partition(":")[0] for allowed in error.allowed]
        for parameter, problem in error.problems:
            said = problem if parameter in names else f"unknown parameter{meant(parameter, names)}"
            inside = (*at, "parameters", *parameter.split("."))
            where = (*at, "model") if parameter == "model" else inside
            yield found.finding(where, f"{said} ({policy.name} takes {takes})")
    except PolicyError as error:
        yield found.finding((*at, "name"), str(error))
