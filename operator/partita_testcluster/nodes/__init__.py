"""Simulated GPU nodes: a scheduler, kubelets and agents over the API of any Kubernetes cluster.

They run server Pods (reporting their GPUs as an agent would) and job Pods with the durations,
memory and interference that the Pods' annotations ask for (`pods`), at a chosen speed, and let
GPUs and nodes fail on request (`faults`). Pods that ask for no GPU are left to the cluster's own
scheduler. What nobody asks of a node is not simulated: no images, logs, probes or networking.
"""

from partita_testcluster.nodes.faults import parse_faults
from partita_testcluster.nodes.node import NodeSpec, node_specs
from partita_testcluster.nodes.run_nodes import run_nodes

__all__ = ["NodeSpec", "node_specs", "parse_faults", "run_nodes"]
