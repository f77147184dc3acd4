"""Building Pods and reading their status. The functions do no I/O."""

from partita.pods.allocation import JobAllocation
from partita.pods.job_pod import JobPod, build_job_pod, gpu_containers, pod_name
from partita.pods.outcome import PodOutcome, read_outcome
from partita.pods.server_pod import ServerPodSettings, build_server_pod
from partita.pods.template_check import TemplateError, template_problems

__all__ = [
    "JobAllocation",
    "JobPod",
    "PodOutcome",
    "ServerPodSettings",
    "TemplateError",
    "build_job_pod",
    "build_server_pod",
    "gpu_containers",
    "pod_name",
    "read_outcome",
    "template_problems",
]
