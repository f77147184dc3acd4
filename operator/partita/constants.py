"""Names shared by the Kubernetes API, the users and Partita's components."""

from typing import Final

__all__ = [
    "ALLOCATION_GATE",
    "ALLOCATOR_TAINT",
    "ANNOTATION_APPLICATION",
    "ANNOTATION_ESTIMATED_START",
    "ANNOTATION_EXPECTED_DURATION",
    "ANNOTATION_FRAMEWORK",
    "ANNOTATION_JOB_UID",
    "ANNOTATION_MEMORY",
    "ANNOTATION_MEMORY_LIMIT",
    "ANNOTATION_PARTITION",
    "ANNOTATION_POSITION",
    "ANNOTATION_PREPARE",
    "ANNOTATION_PROCESSES",
    "ANNOTATION_RETRY",
    "ANNOTATION_STATUS",
    "ANNOTATION_TEMPLATE",
    "ANNOTATION_THREADS",
    "CAPACITY_MEMORY",
    "CAPACITY_THREADS",
    "CLAIM_FINALIZER",
    "COMPONENT_JOB",
    "COMPONENT_PROBE",
    "COMPONENT_SERVER",
    "COMPONENT_USAGE",
    "CONTROL_CODES",
    "DEVICE",
    "DRIVER",
    "FINALIZER",
    "GPU_RESOURCE",
    "GROUP",
    "KUBELET_DIRECTORY",
    "LABEL_ATTEMPT",
    "LABEL_COMPONENT",
    "LABEL_JOB",
    "LABEL_PARTITION",
    "LABEL_SERVER",
    "LIMIT_MEMORY",
    "LIMIT_THREADS",
    "LONGEST_KUBELET_DIRECTORY",
    "MAX_JOB_NAME",
    "MAX_PARTITION_NAME",
    "MPS_MAX_CLIENTS",
    "OTHERS_JOB",
    "PART_OF",
    "POD_SETTINGS",
    "VERSION",
]

GROUP: Final = "partita.dev"
VERSION: Final = "v1alpha1"

PART_OF: Final = {"app.kubernetes.io/part-of": "partita"}
"""Label of everything that an installation consists of, except CRDs and the objects of users."""
FINALIZER: Final = "partita.dev/ledger"
"""On GPUServers: a GPUServer with allocations is drained before it is deleted."""

LABEL_COMPONENT: Final = "partita.dev/component"
LABEL_PARTITION: Final = "partita.dev/partition"
LABEL_SERVER: Final = "partita.dev/server"
LABEL_JOB: Final = "partita.dev/job"
LABEL_ATTEMPT: Final = "partita.dev/attempt"
COMPONENT_SERVER: Final = "server"
COMPONENT_JOB: Final = "job"
COMPONENT_PROBE: Final = "probe"
COMPONENT_USAGE: Final = "usage"

ANNOTATION_APPLICATION: Final = "partita.dev/application"
ANNOTATION_MEMORY: Final = "partita.dev/gpu-memory"
ANNOTATION_THREADS: Final = "partita.dev/gpu-threads"
ANNOTATION_JOB_UID: Final = "partita.dev/job-uid"
ANNOTATION_PROCESSES: Final = "partita.dev/processes"
ANNOTATION_PARTITION: Final = "partita.dev/partition"
"""On a Pod with the limits below: the partition, if its namespace can use several."""
ANNOTATION_TEMPLATE: Final = "partita.dev/template-hash"
"""On a server Pod: hash of the settings that it was created from."""
ANNOTATION_FRAMEWORK: Final = "partita.dev/framework"
ANNOTATION_EXPECTED_DURATION: Final = "partita.dev/expected-duration"
ANNOTATION_MEMORY_LIMIT: Final = "partita.dev/memory-limit"
ANNOTATION_STATUS: Final = "partita.dev/status"
"""On a claim: why it waits, as `<Reason>: <message>`."""
ANNOTATION_POSITION: Final = "partita.dev/queue-position"
"""On a claim that waits: its position in the queue of its partition."""
ANNOTATION_ESTIMATED_START: Final = "partita.dev/estimated-start"
"""On a claim that waits: when it is expected to be allocated, as JSON with the fields of a job's
`status.estimatedStart`."""
ANNOTATION_PREPARE: Final = "partita.dev/prepare-again"
"""On a Pod: when the operator last made kubelet try again to prepare its claims."""
ANNOTATION_RETRY: Final = "partita.dev/retry"
"""On a job that has failed: a new value, such as the time, queues it again."""

POD_SETTINGS: Final = {
    ANNOTATION_APPLICATION: "application",
    ANNOTATION_EXPECTED_DURATION: "expectedDuration",
    ANNOTATION_FRAMEWORK: "framework",
    ANNOTATION_MEMORY: "gpuMemory",
    ANNOTATION_MEMORY_LIMIT: "gpuMemoryLimit",
    ANNOTATION_PARTITION: "partition",
    ANNOTATION_PROCESSES: "processes",
    ANNOTATION_THREADS: "threadPercent",
}
"""Annotations by which a Pod with a claim is set, and the fields of a job that say the same."""

LIMIT_MEMORY: Final = "partita.dev/gpu-memory"
LIMIT_THREADS: Final = "partita.dev/gpu-threads"
"""Limits of a container that `manifests/limits` replaces by a claim."""

DRIVER: Final = "gpu.partita.dev"
"""The driver of dynamic resource allocation, and the end of the names of Partita's device classes.
"""
DEVICE: Final = "gpu"
"""The only device in the pool of a GPUServer."""
CAPACITY_MEMORY: Final = "memory"
CAPACITY_THREADS: Final = "threads"
ALLOCATOR_TAINT: Final = "partita.dev/allocator"
"""On every device of Partita, with the effect NoSchedule: kube-scheduler never allocates it."""
ALLOCATION_GATE: Final = "partita.dev/allocation"
"""Scheduling gate of Pods with a claim. The operator removes it when the claim is allocated."""
CLAIM_FINALIZER: Final = "resource.kubernetes.io/delete-protection"
"""On allocated claims (`resource/v1`, `Finalizer` in k8s.io/api)."""

GPU_RESOURCE: Final = "nvidia.com/gpu"
"""Resource of NVIDIA's device plugin; a server Pod requests one."""

KUBELET_DIRECTORY: Final = "/var/lib/kubelet"
"""kubelet's directory unless its `--root-dir` names another, as in k0s and MicroK8s."""
LONGEST_KUBELET_DIRECTORY: Final = 44
"""Most characters of kubelet's directory. That of MicroK8s has 41,
/var/snap/microk8s/common/var/lib/kubelet
(https://gist.github.com/neoaggelos/c2b400a61b6b283719e255458ebdd30b). What is left of a socket's
path names the GPUServer: `partita.agent.dra.sockets`."""

MPS_MAX_CLIENTS: Final = 48
"""Clients of one GPU under MPS (Volta and later): https://docs.nvidia.com/deploy/mps/,
"Client-Server Connection". Used until the GPU's agent reports the limit of its driver, which is 60
from CUDA 13.1 on."""

MAX_PARTITION_NAME: Final = 52
"""A partition's GPUServers are named `<partition>-<n>`, a label value of up to 63 characters."""
MAX_JOB_NAME: Final = 57
"""A job's Pods are named `<job>-<attempt>`, and a Pod's host name has 63 characters."""

OTHERS_JOB: Final = "a job or workload of another namespace"
"""Replaces a name in a status whose readers must not learn the name."""

CONTROL_CODES: Final = dict.fromkeys({*range(0x20), *range(0x7F, 0xA0)} - {ord("\n"), ord("\t")})
"""Control codes (Unicode's category Cc, including ESC) except line ends and tabs, to remove."""
