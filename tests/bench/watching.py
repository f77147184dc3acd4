"""`python -m bench.watching`: what it costs to follow jobs by an informer, and by kopf.

Each way runs in a process of its own, against one real API server with queued jobs. A job is
submitted as soon as the first object was listed, and afterwards others are changed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import kopf
import orjson

from apiserver.build import assets
from apiserver.controlplane import ControlPlane
from bench import harness
from bench.client import Client, client
from bench.harness import Figure, resident, tell
from bench.shape import job
from bench.stage import install_kinds, jobs_path
from partita.garbage_collection import collect_rarely
from partita.handlers import REGISTRY, Operator
from partita.kube.client import JOBS, PARTITIONS, Kube
from partita.kube.connect import connect
from partita.store.informer import Informer
from partita.store.missing import forget_missing
from partita.store.state import State

NAMESPACE = "default"
AT_ONCE = 16
OTHERS = {f"app.example.com/{name}": "x" * 60 for name in "abcdefghijkl"}
"""Annotations, so that an object has the 2 KB of one that Argo CD applies."""
WAYS = ("informer", "kopf", "kopf with its own list")


async def follow(way: str, kubeconfig: str, jobs: int, changes: int) -> None:
    """Follow the jobs in one way; say what was seen, and what it cost."""
    state, began = State(), time.process_time()
    applied = 0

    def changed(body: dict[str, Any], *, deleted: bool = False) -> None:
        nonlocal applied, began
        state.apply_job(body, deleted=deleted)
        applied += 1
        if applied == 1:
            say(listing=True)
        if applied == jobs:
            say(listed=(time.process_time() - began) / jobs)
        if body["metadata"]["name"].startswith("new-"):
            say(seen=time.time())
            began = time.process_time()
        if applied == jobs + 1 + changes:
            cost = (time.process_time() - began) / changes
            say(event=cost, memory=resident(os.getpid()))

    def say(**facts: Any) -> None:
        sys.stdout.write(orjson.dumps(facts).decode() + "\n")
        sys.stdout.flush()

    async with connect(kubeconfig) as api:
        kube = Kube(api)
        informer = Informer(
            kube, JOBS, changed, forget_missing=partial(forget_missing, state, JOBS)
        )
        partitions = Informer(kube, PARTITIONS, lambda *_, **__: None)
        settings = kopf.OperatorSettings()
        own = way == WAYS[-1]
        if not own:
            await informer.list()
        collect_rarely()  # as the operator does once it has listed
        if way == WAYS[0]:
            await informer.run()
        _tasks = await kopf.spawn_tasks(  # the event loop itself keeps none
            registry=REGISTRY,
            settings=settings,
            standalone=True,
            clusterwide=True,
            memo=Operator(
                kube,
                {} if own else {JOBS: informer.start, PARTITIONS: partitions.start},
                {JOBS: changed, PARTITIONS: lambda *_, **__: None},
                lambda: setattr(settings.watching, "chunk_size", 500 if own else 1),
            ),
        )
        await asyncio.Event().wait()


async def measure(way: str, api: Client, given: argparse.Namespace, config: Path) -> list[Figure]:
    """Have one way follow the jobs, and change them."""
    command = ["-m", "bench.watching", "--way", way, "--kubeconfig", str(config)]
    counts = ["--jobs", str(given.jobs), "--changes", str(given.changes)]
    program = await asyncio.create_subprocess_exec(
        sys.executable, *command, *counts, stdout=asyncio.subprocess.PIPE
    )
    assert program.stdout is not None
    new, facts, sent = f"new-{WAYS.index(way)}", dict[str, Any](), 0.0
    while "memory" not in facts:
        facts = {**facts, **orjson.loads(await program.stdout.readline())}
        if not sent:
            await api.post(jobs_path(NAMESPACE), job(new, "none", "1Gi", {}))
            sent = time.time()
        if "event" not in facts and "seen" in facts and "listed" in facts:
            for number in range(given.changes):
                path = f"{jobs_path(NAMESPACE)}/job-{number % given.jobs}"
                await api.patch(path, {"metadata": {"labels": {"changed": f"{new}-{number}"}}})
    program.kill()
    await program.wait()
    await api.delete(f"{jobs_path(NAMESPACE)}/{new}")
    return [
        Figure(f"{way}: CPU an object listed", facts["listed"] * 1e6, "µs", samples=given.jobs),
        Figure(f"{way}: CPU an event", facts["event"] * 1e6, "µs", samples=given.changes),
        Figure(f"{way}: resident memory", facts["memory"], "MB"),
        Figure(f"{way}: a new job is seen after", max(facts["seen"] - sent, 0), "s"),
    ]


async def bench(given: argparse.Namespace) -> list[Figure]:
    """Submit the jobs, and measure each way."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def submit(number: int) -> None:
        async with limit:
            await api.post(jobs_path(NAMESPACE), job(f"job-{number}", "none", "8Gi", OTHERS))

    with ControlPlane(assets()) as plane:
        async with client(plane.url, plane.token, plane.certificate) as api:
            await install_kinds(api)
            await asyncio.gather(*map(submit, range(given.jobs)))
            tell(f"{given.jobs} jobs submitted")
            return [one for way in WAYS for one in await measure(way, api, given, plane.kubeconfig)]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.watching", description=__doc__)
    parser.add_argument("--jobs", type=harness.positive, default=10_000, metavar="N")
    parser.add_argument("--changes", type=harness.positive, default=2_000, metavar="N")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--kubeconfig", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.way:
        asyncio.run(follow(given.way, given.kubeconfig, given.jobs, given.changes))
        return
    harness.show("Following jobs", asyncio.run(bench(given)))


if __name__ == "__main__":
    main()
