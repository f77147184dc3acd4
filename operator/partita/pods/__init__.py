"""What the operator puts into Pods, and what it reads from them. Pure: no I/O."""

from partita.pods.grant import Grant, device_resource
from partita.pods.job import JobPod, build_job_pod, device_slots, pod_name
from partita.pods.outcome import PodOutcome, read_outcome
from partita.pods.server import ServerPodSettings, build_server_pod
from partita.pods.template import TemplateError, template_problems

__all__ = [
    "Grant",
    "JobPod",
    "PodOutcome",
    "ServerPodSettings",
    "TemplateError",
    "build_job_pod",
    "build_server_pod",
    "device_resource",
    "device_slots",
    "pod_name",
    "read_outcome",
    "template_problems",
]
