"""Checks of resources in files by the rules of the CRDs and of the operator, and across files."""

import difflib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from pydantic import ValidationError
from typing_extensions import override

from partita.constants import GROUP, VERSION
from partita.models import GPUPartition, SharedGPUJob, SharingMode
from partita.models.crd import RESOURCES, crds
from partita.models.errors import describe
from partita.models.sharing import Burst
from partita.models.template import PodTemplate
from partita.pods.job_pod import device_slots, is_gpu_resource
from partita.pods.template_check import template_problems
from partita.reconcile.job_request import Largest, resolve
from partita.reconcile.reasons import Why
from partita.validation.metadata import check_metadata
from partita.validation.schema import CRDValidator
from partita.validation.yaml_documents import Document, Location, Problem, read_documents
from partita_policies.errors import PolicyError, PolicyParametersError
from partita_policies.registry import load, parse_parameters

__all__ = ["Finding", "ValidationReport", "check_files"]

_RESOURCES: Final = {resource.kind: resource for resource in RESOURCES}
_API_VERSION: Final = f"{GROUP}/{VERSION}"
_TEMPLATE_PATH: Final = re.compile(r"(template[\w.\[\]]*) (.*)", re.DOTALL)
_PATH_PART: Final = re.compile(r"(\w+)|\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Finding:
    """An error or a warning, and its location in a file."""

    file: str
    line: int
    kind: str
    namespace: str
    name: str
    path: str
    message: str
    warning: bool = False

    @override
    def __str__(self) -> str:
        about = [f"{self.kind}/{self.name or '?'}"] if self.kind else []
        said = f"warning: {self.message}" if self.warning else self.message
        return ": ".join([f"{self.file}:{self.line}", *about, *filter(None, [self.path]), said])


@dataclass(slots=True)
class ValidationReport:
    """The number of objects checked, and the findings."""

    files: int = 0
    checked: int = 0
    passed_over: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def errors(self) -> list[Finding]:
        """The findings that must be corrected."""
        return [f for f in self.findings if not f.warning]

    @property
    def warnings(self) -> list[Finding]:
        """The findings that may be intended."""
        return [f for f in self.findings if f.warning]


@dataclass(slots=True)
class _Object:
    """One object of a file, and its location in the file."""

    file: str
    document: Document
    base: Location
    body: dict[str, Any]

    def finding(self, path: Location, message: str, *, warning: bool = False) -> Finding:
        meta = self.body.get("metadata")
        meta = meta if isinstance(meta, dict) else {}
        return Finding(
            file=self.file,
            line=self.document.line((*self.base, *path)),
            kind=_word(self.body.get("kind")),
            namespace=_word(meta.get("namespace")),
            name=_word(meta.get("name") or meta.get("generateName")),
            path=_text(path),
            message=message,
            warning=warning,
        )


@dataclass(slots=True)
class _Known:
    """The valid objects of the files, for the checks across files."""

    partitions: defaultdict[str, list[GPUPartition]] = field(
        default_factory=lambda: defaultdict(list)
    )
    namespaces: dict[str, dict[str, str]] = field(default_factory=dict)
    jobs: list[tuple[_Object, SharedGPUJob]] = field(default_factory=list)


def check_files(files: Iterable[tuple[str, bytes]]) -> ValidationReport:
    """Check the resources in files, first each separately and then against each other.

    Parameters
    ----------
    files
        Name and content of each file.
    """
    report, known = ValidationReport(), _Known()
    for name, content in files:
        report.files += 1
        for document in read_documents(content):
            if isinstance(document, Problem):
                problem = Finding(name, document.line, "", "", "", "", document.message)
                report.findings.append(problem)
                continue
            report.findings += [
                Finding(name, p.line, "", "", "", "", p.message) for p in document.problems
            ]
            for found in _objects(name, document, (), document.value):
                _check(found, report, known)
    for found, job in known.jobs:
        report.findings += _job_findings(found, job, known)
    order = {name: i for i, name in enumerate(dict.fromkeys(f.file for f in report.findings))}
    report.findings.sort(key=lambda f: (order[f.file], f.line))
    return report


def _objects(file: str, document: Document, base: Location, value: Any) -> Iterator[_Object]:
    """Yield the objects of a document; a List contains several."""
    if not isinstance(value, dict):
        if value is not None:
            yield _Object(file, document, base, {})
        return
    items = value.get("items")
    if value.get("kind") == "List" and isinstance(items, list) and len(base) == 0:
        for index, item in enumerate(items):
            yield from _objects(file, document, (*base, "items", index), item)
        return
    yield _Object(file, document, base, value)


def _check(found: _Object, report: ValidationReport, known: _Known) -> None:
    body = found.body
    mistake = _mistaken(body)
    if mistake is not None:
        report.checked += 1
        report.findings.append(found.finding(*mistake))
        return
    if body.get("apiVersion") != _API_VERSION:
        report.passed_over += 1
        _note_namespace(body, known)
        return
    report.checked += 1
    problems = list(_schema_findings(found))
    report.findings += problems
    try:
        resource = _RESOURCES[body["kind"]].model.parse(body)
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


def _mistaken(body: Mapping[str, Any]) -> tuple[Location, str] | None:
    """Return the error of an object that is intended for Partita but has a wrong kind or version.

    Return None if there is no such error.
    """
    version, kind = _word(body.get("apiVersion")), _word(body.get("kind"))
    group = version.partition("/")[0]
    if group == GROUP:
        if version != _API_VERSION:
            return ("apiVersion",), f"there is no {version or 'such version'}: write {_API_VERSION}"
        if kind not in _RESOURCES:
            there = ", ".join(sorted(_RESOURCES))
            return ("kind",), f"there is no kind {kind!r}{_meant(kind, _RESOURCES, there)}"
    elif kind in _RESOURCES and (not version or "partita" in version):
        return ("apiVersion",), f"a {kind} has another one: write {_API_VERSION}"
    return None


def _note_namespace(body: Mapping[str, Any], known: _Known) -> None:
    meta = body.get("metadata")
    if (body.get("apiVersion"), body.get("kind")) != ("v1", "Namespace"):
        return
    if isinstance(meta, dict) and isinstance(meta.get("name"), str):
        labels = meta.get("labels")
        known.namespaces[meta["name"]] = {
            **(labels if isinstance(labels, dict) else {}),
            # The API server sets this label on every namespace.
            "kubernetes.io/metadata.name": meta["name"],
        }


def _schema_findings(found: _Object) -> Iterator[Finding]:
    """Yield the violations that the API server would report, and set the object's defaults."""
    body = found.body
    resource = _RESOURCES[body["kind"]]
    validator = _validator(resource.kind)
    for path in validator.prune(body):
        known = _fields_at(validator, path[:-1])
        told = ", ".join(sorted(known)) or "none"
        yield found.finding(path, f"unknown field{_meant(str(path[-1]), known, told)}")
    meta = body.setdefault("metadata", {})
    unnamed = False
    if isinstance(meta, dict) and not meta.get("name"):
        prefix = _word(meta.get("generateName"))
        unnamed = not prefix
        # The name as the API server would generate it, or a placeholder for rules that read it.
        meta["name"] = "unnamed" if unnamed else f"{prefix[:58]}00000"
    validator.default(body)
    errors = validator.validate(body, all_rules=True)
    if unnamed:
        del meta["name"]
    for error in errors:
        yield found.finding(error.path, error.message)
    if any(error.path[:1] == ("metadata",) for error in errors) or not isinstance(meta, dict):
        return
    if unnamed:
        yield found.finding(("metadata", "name"), "Required value: write a name")
        return
    for error in check_metadata(meta, None, label=False):
        yield found.finding(error.path, error.message)
    if not resource.namespaced and meta.get("namespace"):
        said = f"a {resource.kind} belongs to no namespace: remove it"
        yield found.finding(("metadata", "namespace"), said)


@cache
def _validator(kind: str) -> CRDValidator:
    crd = next(c for c in crds() if c["spec"]["names"]["kind"] == kind)
    return CRDValidator.from_crd(crd, VERSION)


def _fields_at(validator: CRDValidator, path: Location) -> Iterable[str]:
    node = validator.schema
    for part in path:
        below = node.items if isinstance(part, int) else node.properties.get(part)
        below = below or node.additional
        if below is None:
            return ()
        node = below
    return tuple(node.properties)


def _meant(word: str, known: Iterable[str], told: str = "") -> str:
    """Return a suggestion for a misspelt word, or else the list of known words."""
    by_lower = {k.lower(): k for k in known}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1)
    if close:
        return f": did you mean {by_lower[close[0]]}?"
    return f" (known: {told})" if told else ""


def _policy_findings(found: _Object, partition: GPUPartition) -> Iterator[Finding]:
    policy, at = partition.spec.policy, ("spec", "policy")
    named: list[tuple[Location, str]] = [
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
            said = problem if parameter in names else f"unknown parameter{_meant(parameter, names)}"
            inside = (*at, "parameters", *parameter.split("."))
            where = (*at, "model") if parameter == "model" else inside
            yield found.finding(where, f"{said} ({policy.name} takes {takes})")
    except PolicyError as error:
        yield found.finding((*at, "name"), str(error))


def _job_findings(found: _Object, job: SharedGPUJob, known: _Known) -> Iterator[Finding]:
    problems = template_problems(job.spec.template.unpack())
    for path, name in () if problems else _gpu_requests(job.spec.template.unpack()):
        said = (
            "the operator removes this: a job gets its GPU from the partition. Write how much GPU "
            f"memory the job needs in spec.gpuMemory instead of {name}"
        )
        yield found.finding(("spec", "template", "spec", *path, name), said, warning=True)
    for problem in problems:
        match = _TEMPLATE_PATH.fullmatch(problem)
        place, said = (match[1], match[2]) if match else ("template", problem)
        yield found.finding(("spec", *_parts(place)), said)
    name = job.spec.partition
    partitions = known.partitions.get(name)
    if not partitions:
        if known.partitions:
            there = ", ".join(sorted(known.partitions))
            said = f"no GPUPartition {name} is among these files (there is: {there})"
            yield found.finding(("spec", "partition"), said, warning=True)
        return
    if not problems:
        # Overlays may contain several partitions of one name. It is enough if one accepts the job.
        refusals = [_refusal(job, partition) for partition in partitions]
        if all(refusals) and refusals[0] is not None:
            yield found.finding(*refusals[0])
    sharing = [p.spec.sharing for p in partitions]
    never = all(s.mode is SharingMode.MPS and s.burst is Burst.NEVER for s in sharing)
    if job.spec.gpu_memory_limit and never:
        said = (
            f"GPUPartition {name} has sharing.burst Never, so this has no effect: remove it, or "
            "set sharing.burst to Spare there"
        )
        yield found.finding(("spec", "gpuMemoryLimit"), said, warning=True)
    labels = known.namespaces.get(job.metadata.namespace)
    if labels is not None and not any(
        p.spec.allowed_namespaces is None or p.spec.allowed_namespaces.matches(labels)
        for p in partitions
    ):
        said = (
            f"GPUPartition {name} does not serve namespace {job.metadata.namespace}: label the "
            "namespace as its spec.allowedNamespaces asks"
        )
        yield found.finding(("spec", "partition"), said, warning=True)


def _gpu_requests(template: PodTemplate) -> Iterator[tuple[Location, str]]:
    """Yield the locations and names of requests for GPUs as used by Pods outside Partita."""
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(template.spec.get(kind) or ()):
            for part, amounts in (container.get("resources") or {}).items():
                for name in filter(is_gpu_resource, amounts or ()):
                    yield (kind, index, "resources", part), name


def _refusal(job: SharedGPUJob, partition: GPUPartition) -> tuple[Location, str] | None:
    """Return why a partition can never run a job, independent of its GPUs."""
    resolved = resolve(job, partition, largest=Largest())
    if not isinstance(resolved, Why):
        return None
    spec = job.spec
    path: Location
    if spec.gpu_memory_limit and partition.spec.sharing.mode is not SharingMode.MPS:
        path = ("spec", "gpuMemoryLimit")
    elif spec.gpus > 1 and partition.spec.sharing.mode is not SharingMode.EXCLUSIVE:
        path = ("spec", "gpus")
    elif spec.slice is not None and partition.spec.slice(spec.slice) is None:
        path = ("spec", "slice")
    elif device_slots(spec.template.unpack()) > partition.spec.sharing.max_jobs_per_gpu:
        path = ("spec", "template", "spec", "containers")
    else:
        path = ("spec", "gpuMemory")
    return path, resolved.message.removeprefix(f"{_text(path[1:])}: ")


def _parts(path: str) -> Location:
    return tuple(int(index) if index else word for word, index in _PATH_PART.findall(path))


def _text(path: Location) -> str:
    out = ""
    for part in path:
        if isinstance(part, int):
            out += f"[{part}]"
        else:
            out += f".{part}" if out else part
    return out


def _word(value: Any) -> str:
    return value if isinstance(value, str) else ""
