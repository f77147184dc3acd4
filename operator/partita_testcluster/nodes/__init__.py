"""Simulated GPU nodes: a scheduler, kubelets and agents over the API of any Kubernetes cluster.

They run server Pods, whose agents report their GPUs, and job Pods, whose duration, memory and GPU
use are in annotations of the Pods (`simulated_pods`), at a chosen speed. Jobs on one GPU slow each
other down as `partita_policies.interference` predicts. Pods that request no GPU are left to the
cluster's own scheduler. Images, probes and networking are not simulated.

The annotation `sim.partita.dev/fault` of a GPUServer makes its GPU fail (`simulated_agent`). A node
is lost while its Node object is deleted.
"""

from partita_testcluster.nodes.node import NodeSpec, node_specs
from partita_testcluster.nodes.run_nodes import run_nodes

__all__ = ["NodeSpec", "node_specs", "run_nodes"]
