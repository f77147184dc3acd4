"""`partita logs` on what kubelet keeps of a job's program."""

from __future__ import annotations

import sys
from asyncio.subprocess import Process
from contextlib import AbstractAsyncContextManager

from cluster.cluster import Cluster
from cluster.jobs import Jobs
from support.api import Api
from support.programs import program

WAIT = "until test -e /tmp/go; do sleep 0.1; done"
"""The next line comes when a test says so."""


def reading(cluster: Cluster, *arguments: str) -> AbstractAsyncContextManager[Process]:
    """Run the command, and end it if it still runs."""
    kubeconfig = f"--kubeconfig={cluster.plane.kubeconfig}"
    return program(sys.executable, "-m", "partita", "logs", *arguments, kubeconfig)


async def log(cluster: Cluster, *arguments: str) -> tuple[str, str, int | None]:
    """Return what the command prints, what it complains of, and its exit code."""
    async with reading(cluster, *arguments) as process:
        out, err = await process.communicate()
        return out.decode(), err.decode(), process.returncode


async def test_a_log_is_followed_while_the_program_runs_and_read_when_it_has_ended(
    cluster: Cluster, jobs: Jobs, api: Api
):
    script = f"echo begins; {WAIT}; echo goes on; echo ends"
    await jobs.submit_command("train", ["sh", "-c", script])
    container = await jobs.running("train")
    name = f"{jobs.namespace}/train"
    async with reading(cluster, name, "--follow") as following:
        assert following.stdout is not None
        assert await following.stdout.readline() == b"begins\n"
        assert await log(cluster, name) == ("begins\n", "", 0)
        cluster.execute(container, "touch", "/tmp/go")
        out, err = await following.communicate()
        assert (out, err, following.returncode) == (b"goes on\nends\n", b"", 0)
    await jobs.reaches("train", "Succeeded")
    assert await log(cluster, name) == ("begins\ngoes on\nends\n", "", 0)
    assert await log(cluster, name, "--follow", "--tail=1") == ("ends\n", "", 0)
    await api.delete(jobs.pod_path("train-1"))
    await api.gone(jobs.pod_path("train-1"))
    out, err, code = await log(cluster, name)
    assert (out, code) == ("", 1)
    assert "train-1 is gone" in err


async def test_each_attempt_has_a_log_of_its_own(cluster: Cluster, jobs: Jobs):
    once = "case $HOSTNAME in *-1) echo in vain; exit 1;; *) echo well done;; esac"
    await jobs.submit_command("again", ["sh", "-c", once])
    await jobs.reaches("again", "Succeeded")
    name = f"{jobs.namespace}/again"
    assert await log(cluster, name) == ("well done\n", "", 0)
    assert await log(cluster, name, "--attempt=1") == ("in vain\n", "", 0)
