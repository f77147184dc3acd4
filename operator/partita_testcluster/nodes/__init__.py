"""Simulated GPU nodes: a scheduler, kubelets and agents over the API of any Kubernetes cluster.

They run server Pods, whose agents report their GPUs, and the Pods of jobs and of claims, whose
duration, memory and GPU use are in annotations of the Pods (`simulated_pods`), at a chosen speed.
Programs on one GPU slow each other down as `partita_policies.interference` predicts. Pods that
request no GPU and have no claim of Partita are left to the cluster's own scheduler. Images, probes
and networking are not simulated.

`scheduler` decides without I/O where a Pod runs, and `pod_scheduler` carries it out. `kubelet`
follows the Pods, `pod_run` runs one of them, and `simulated_agent` is the agent of one GPU.

The annotation `sim.partita.dev/fault` of a GPUServer makes its GPU fail (`simulated_agent`). A node
is lost while its Node object is deleted.
"""

from partita_testcluster.nodes.node import NodeSpec, node_specs
from partita_testcluster.nodes.run_nodes import run_nodes

__all__ = ["NodeSpec", "node_specs", "run_nodes"]
