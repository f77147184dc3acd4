"""What the native library knows of jobs and GPUs under every policy (`native/fit.h`), for numpy."""

import numpy as np

from partita_policies.types import Job, RunningJob

__all__ = ["FREE_GPU", "KIND", "asked"]

KIND = np.dtype(
    [
        *(("memory", "i8"), ("host", "i8", 3)),
        *((name, "i4") for name in ("slots", "clients", "alone", "lasting")),
        *((name, "i4") for name in ("application", "unused")),
    ]
)
FREE_GPU = np.dtype(
    [
        *((name, "i8") for name in ("capacity", "memory")),
        *((name, "i4") for name in ("slots", "clients", "jobs", "alone")),
    ]
)


def asked(job: Job | RunningJob) -> tuple[object, ...]:
    """Return the row of a job in an array of `KIND`."""
    host = (job.cpu, job.host_memory, job.host_storage)
    return (job.memory, host, job.slots, job.clients, job.alone, job.lasting, 0, 0)
