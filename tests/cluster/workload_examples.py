"""The examples of workloads that need no other operator, as they stand but for what they run."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import yaml

from cluster.images import JOB, ROOT

__all__ = ["TEMPLATE", "workload"]

EXAMPLES = ROOT / "examples" / "workloads"

Json = dict[str, Any]


def _read(name: str) -> Json:
    document: Json = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    del document["metadata"]["namespace"]
    return document


TEMPLATE = _read("claim-template")
"""The ResourceClaimTemplate that they name."""


def workload(name: str, command: Sequence[str]) -> Json:
    """Return an example whose container runs a command of an image that the node has.

    Parameters
    ----------
    name
        The name of its file. Of ``notebook`` it is the StatefulSet that Kubeflow's controller makes:
        of the Notebook's Pod template, with its annotations
        (https://github.com/kubeflow/notebooks, components/notebook-controller).
    """
    document = _read(name)
    if name == "notebook":
        document = _stateful_set(document)
    spec = document["spec"] if document["kind"] == "Pod" else document["spec"]["template"]["spec"]
    spec["terminationGracePeriodSeconds"] = 1  # programs without a handler get no SIGTERM
    (container,) = spec["containers"]
    container |= {"image": JOB, "command": list(command)}
    return document


def _stateful_set(notebook: Json) -> Json:
    # Not the Notebook's own name: the example of a StatefulSet has it too.
    meta = {"name": "notebook", "labels": {"app": "notebook"}}
    template = copy.deepcopy(notebook["spec"]["template"])
    annotations = notebook["metadata"]["annotations"]
    template["metadata"] = {"labels": meta["labels"], "annotations": annotations}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": meta,
        "spec": {"replicas": 1, "selector": {"matchLabels": meta["labels"]}, "template": template},
    }
