"""The kinds and objects that the conformance suite works with.

``Widget`` (namespaced) uses every feature of a CRD that partita's own use; ``Gadget`` is
cluster-scoped and plain.
"""

from __future__ import annotations

from typing import Any

from support.api import Answer

GROUP = "conformance.partita.dev"
GADGETS = f"/apis/{GROUP}/v1/gadgets"
DRIVER = "gpu.partita.dev"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
KINDS = {"deployments": "Deployment", "replicasets": "ReplicaSet", "statefulsets": "StatefulSet"}
RESOURCE_V1 = "/apis/resource.k8s.io/v1"
VERSIONS = {
    **dict.fromkeys(KINDS, "/apis/apps/v1"),
    "jobs": "/apis/batch/v1",
    "leases": "/apis/coordination.k8s.io/v1",
    "poddisruptionbudgets": "/apis/policy/v1",
    "resourceclaims": RESOURCE_V1,
    "resourceclaimtemplates": RESOURCE_V1,
}
"""Where the kinds are that are not in `/api/v1`."""
MAIN = {"name": "main", "image": "example.org/image:1"}
USER = MAIN | {"resources": {"claims": [{"name": "gpu"}]}}


def widgets(namespace: str, name: str = "") -> str:
    """Return the path of the namespace's widgets, or of one."""
    path = f"/apis/{GROUP}/v1/namespaces/{namespace}/widgets"
    return f"{path}/{name}" if name else path


def widget(name: str = "w", **spec: Any) -> dict[str, Any]:
    """Return a valid Widget with these spec fields."""
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Widget",
        "metadata": {"name": name},
        "spec": {"size": "small"} | spec,
    }


def gadget(name: str = "g", **metadata: Any) -> dict[str, Any]:
    """Return a valid Gadget with these metadata fields."""
    return {"apiVersion": f"{GROUP}/v1", "kind": "Gadget", "metadata": {"name": name} | metadata}


def config_map(name: str = "c", data: dict[str, str] | None = None, **metadata: Any) -> Any:
    """Return a ConfigMap."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name} | metadata,
        "data": data or {},
    }


def path(namespace: str, plural: str, name: str = "") -> str:
    """Return the path of a namespace's built-in objects, or of one."""
    collection = f"{VERSIONS.get(plural, '/api/v1')}/namespaces/{namespace}/{plural}"
    return f"{collection}/{name}" if name else collection


def pods(namespace: str, name: str = "") -> str:
    """Return the path of the namespace's Pods, or of one."""
    return path(namespace, "pods", name)


def claims(namespace: str, name: str = "") -> str:
    """Return the path of the namespace's claims, or of one."""
    return path(namespace, "resourceclaims", name)


def pod(name: str = "p", **spec: Any) -> dict[str, Any]:
    """Return a Pod of one container."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [MAIN]} | spec,
    }


def binding(node: str = "n1") -> dict[str, Any]:
    """Return what binds the Pod `p` to a node."""
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": target}


def request(name: str = "gpu", **exactly: Any) -> dict[str, Any]:
    """Return a request of a claim for a slice of a GPU."""
    return {"name": name, "exactly": {"deviceClassName": "shared.gpu.partita.dev"} | exactly}


def claim(*requests: dict[str, Any], **devices: Any) -> dict[str, Any]:
    """Return a claim of these requests."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": list(requests) or [request()]} | devices},
    }


def claim_template(name: str, **metadata: Any) -> dict[str, Any]:
    """Return a template of claims with this metadata."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"metadata": metadata, "spec": claim()["spec"]},
    }


def template(**spec: Any) -> dict[str, Any]:
    """Return a template of a workload's Pods."""
    return {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [MAIN]} | spec}


def workload(plural: str, **spec: Any) -> dict[str, Any]:
    """Return a workload `w` of one of `KINDS`."""
    shared = {"selector": {"matchLabels": {"app": "a"}}, "template": template()}
    return {
        "apiVersion": "apps/v1",
        "kind": KINDS[plural],
        "metadata": {"name": "w"},
        "spec": shared | spec,
    }


def job(**spec: Any) -> dict[str, Any]:
    """Return a Job `w`."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "w"},
        "spec": {"template": template(restartPolicy="Never", nodeName="n1")} | spec,
    }


def refused(answer: Answer, reason: str, field: str) -> None:
    """Check that an object is refused for this one cause."""
    assert (answer.status, causes(answer.body)) == (422, {(reason, field)})


def causes(body: dict[str, Any]) -> set[tuple[str, str]]:
    """Return a Status' causes as pairs of reason and field.

    Left out are those about no field or the wrong one (``<nil>``, ``.spec.x``): kube-apiserver
    adds such to some causes, as when a bound is checked on a value of the wrong type.
    """
    found = (body.get("details") or {}).get("causes") or ()
    pairs = {(cause.get("reason", ""), cause.get("field", "")) for cause in found}
    return {(reason, field) for reason, field in pairs if field != "<nil>" and field[:1] != "."}


def crd(plural: str, kind: str, *, scope: str, version: dict[str, Any], **names: Any) -> Any:
    """Return a CustomResourceDefinition of one version, ``v1``."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": {
                "plural": plural,
                "singular": kind.lower(),
                "kind": kind,
                "listKind": f"{kind}List",
            }
            | names,
            "versions": [{"name": "v1", "served": True, "storage": True} | version],
        },
    }


SPEC_SCHEMA = {
    "type": "object",
    "description": "What is wanted of the widget.",
    "required": ["size"],
    "x-kubernetes-validations": [
        {
            "rule": "!has(self.minimum) || !has(self.maximum) || self.minimum <= self.maximum",
            "message": "write a minimum of at most the maximum",
            "fieldPath": ".minimum",
        },
        {
            "rule": "has(self.color) == has(oldSelf.color)",
            "message": "color cannot be added or removed; make another widget",
        },
    ],
    "properties": {
        "size": {"type": "string", "enum": ["small", "large"], "description": "How big it is."},
        "replicas": {
            "type": "integer",
            "format": "int32",
            "minimum": 0,
            "maximum": 10,
            "default": 1,
        },
        "color": {
            "type": "string",
            "maxLength": 20,
            "x-kubernetes-validations": [
                {
                    "rule": "self == oldSelf",
                    "message": "color cannot be changed; make another widget",
                }
            ],
        },
        "label": {"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 5},
        "minimum": {"type": "integer"},
        "maximum": {"type": "integer"},
        "amount": {
            "x-kubernetes-int-or-string": True,
            "maxLength": 20,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-validations": [
                {
                    "rule": "isQuantity(string(self)) "
                    "&& quantity(string(self)).isGreaterThan(quantity('0'))",
                    "message": "write a quantity above zero, such as 4Gi",
                }
            ],
        },
        "since": {"type": "string", "format": "date-time"},
        "options": {
            "type": "object",
            "default": {},
            "properties": {"mode": {"type": "string", "default": "fast"}},
        },
        "labels": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "maxProperties": 3,
        },
        "ports": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "port": {"type": "integer"}},
            },
        },
        "tags": {
            "type": "array",
            "x-kubernetes-list-type": "set",
            "maxItems": 3,
            "items": {"type": "string", "maxLength": 10},
        },
        "steps": {"type": "array", "items": {"type": "integer"}, "minItems": 1},
        "template": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {"known": {"type": "integer"}},
        },
    },
}

WIDGET_CRD = crd(
    "widgets",
    "Widget",
    scope="Namespaced",
    shortNames=["wdg"],
    categories=["conformance"],
    version={
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "description": "A widget to test with.",
                "required": ["spec"],
                "properties": {
                    "apiVersion": {"type": "string"},
                    "kind": {"type": "string"},
                    "metadata": {"type": "object"},
                    "spec": SPEC_SCHEMA,
                    "status": {
                        "type": "object",
                        "properties": {
                            "phase": {"type": "string", "enum": ["On", "Off"]},
                            "replicas": {"type": "integer"},
                            "selector": {"type": "string"},
                            "used": {
                                "type": "object",
                                "additionalProperties": {
                                    "type": "object",
                                    "properties": {"memory": {"type": "integer"}},
                                },
                            },
                            "conditions": {
                                "type": "array",
                                "x-kubernetes-list-type": "map",
                                "x-kubernetes-list-map-keys": ["type"],
                                "items": {
                                    "type": "object",
                                    "required": ["type", "status"],
                                    "properties": {
                                        "type": {"type": "string"},
                                        "status": {"type": "string"},
                                        "reason": {"type": "string"},
                                    },
                                },
                            },
                        },
                    },
                },
            }
        },
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [
            {"name": "Size", "type": "string", "jsonPath": ".spec.size"},
            {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"},
            {
                "name": "Ready",
                "type": "string",
                "jsonPath": '.status.conditions[?(@.type=="Ready")].status',
            },
            {"name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ],
        "selectableFields": [{"jsonPath": ".spec.size"}],
    },
)

GADGET_CRD = crd(
    "gadgets",
    "Gadget",
    scope="Cluster",
    version={
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "properties": {
                    "spec": {"type": "object", "properties": {"value": {"type": "integer"}}}
                },
            }
        }
    },
)
