"""`/dev/shm` of jobs: each Pod has its own, and a program of any user can use it."""

from __future__ import annotations

from typing import Any

from cluster.gpus import NodeGPUs
from cluster.images import JOB, PARTITA
from cluster.jobs import Jobs
from cluster.pods import logs, restricted_pod
from support.api import Api
from support.polling import poll

PYTHON = """
import multiprocessing, os, stat
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory
assert os.getuid() == 1000
with multiprocessing.Lock():
    memory = SharedMemory(create=True, size=1 << 20)
    memory.buf[:5] = b"hello"
    memory.close()
    memory.unlink()
found = os.statvfs("/dev/shm")
print("mode", oct(stat.S_IMODE(os.stat("/dev/shm").st_mode)))
print("MiB", found.f_blocks * found.f_frsize >> 20)
"""
"""What PyTorch's DataLoader needs of its workers' shared memory, and what Python is in the image."""


async def said(api: Api, jobs: Jobs, name: str) -> dict[str, str]:
    """Return what a job printed, once it has succeeded."""
    await jobs.reaches(name, "Succeeded")
    lines = (await logs(api, jobs.namespace, f"{name}-1")).splitlines()
    return dict(line.split(maxsplit=1) for line in lines)


def template(image: str, *command: str, **more: Any) -> dict[str, Any]:
    """Return a template of user 1000 that `restricted` admits."""
    spec = restricted_pod("job", image, command)["spec"]
    del spec["restartPolicy"]
    return {"spec": {**spec, **more}}


async def test_a_program_of_user_1000_has_semaphores_and_shared_memory(
    gpus: NodeGPUs, api: Api, jobs: Jobs
):
    await jobs.submit("plain", template=template(PARTITA, "python", "-c", PYTHON))
    # 64 MiB is the size that containerd gives each Pod's `/dev/shm`.
    assert await said(api, jobs, "plain") == {"mode": "0o1777", "MiB": "64"}


async def test_two_tenants_of_a_gpu_do_not_see_each_others_files(
    gpus: NodeGPUs, api: Api, jobs: Jobs
):
    """Both run on one GPU, and at the same time: the second looks while the first runs."""
    leave = "echo secret > /dev/shm/left && ls /dev/shm && exec fake-cuda alloc:900 forever"
    await jobs.submit_command("first", ["sh", "-c", leave])
    await jobs.running("first")
    poll(lambda: sum(map(len, (gpus.pids(0), gpus.pids(1)))) == 1, what="the first has its GPU")
    look = "fake-cuda alloc:900 >/dev/null && echo files $(ls /dev/shm | wc -l)"
    await jobs.submit("second", template=template(JOB, "sh", "-c", look))
    assert await said(api, jobs, "second") == {"files": "0"}
    first, second = [
        (await jobs.until(name, lambda status: status.get("attempts")))["attempts"][0]
        for name in ("first", "second")
    ]
    assert first["gpus"] == second["gpus"], "they were on one GPU"
