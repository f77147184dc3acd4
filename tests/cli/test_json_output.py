"""`-o json` of each command; the fixture `invoke` compares what is printed with its schema."""

from __future__ import annotations

import json
from inspect import isawaitable
from pathlib import Path

import click
import pytest

from cli.objects import attempt, create, job, partition, server
from cli.test_replay import line
from cli.workloads import create_workload, workload
from partita.cli import COMMANDS, main
from partita.cli.options import OutputOption
from partita.kube.client import Kube
from support.api import Api

DATA = Path(__file__).parent / "data"
WITHOUT = {"run", "agent", "completion"}
"""The log of the first two is JSON; the third prints a script."""
ELSEWHERE = {"console", "apiserver", "nodes", "demo", "train", "when"}
"""Commands whose output is compared where tests start them anyway."""
ARGUMENTS = {
    "submit": "new -n {ns} --partition {pool} --image i", "retry": "failed -n {ns}",
    "jobs": "-n {ns}", "workloads": "-n {ns}", "explain": "waits -n {ns}", "logs": "failed -n {ns}",
    "suspend": "waits -n {ns}", "resume": "held -n {ns}", "top": "{pool} --once", "usage": "",
    "drain": "{pool}-0", "policies": "", "validate": f"{DATA}/jobs.yaml", "crds": "--install",
    "doctor": "--no-pods", "bundle": "--file {tmp}/bundle.tar.gz", "uninstall": "--dry-run",
    "simulate": "random --jobs 2 --policy fifo", "replay": "{tmp}", "advise": "random",
}  # fmt: skip
"""Arguments of each command, for the objects of `scene`."""


@pytest.fixture
async def scene(api: Api, partita, namespace: str, tmp_path, monkeypatch):
    """A partition with a GPU, jobs in three states, a Pod that waits, a recording, and logs."""
    pool = f"pool-{namespace}"
    common = {"namespace": namespace, "partition": pool}
    ran = attempt(1, f"{pool}-0", pod="failed-1", outcome="Failed", peakMemory="1Gi")
    failed = {"phase": "Failed", "attempts": [ran]}
    await create(api, partition(pool, gpus=1))
    await create(api, server(f"{pool}-0", of=pool))
    await create(api, job("failed", "1Gi", status=failed, **common))
    await create(api, job("waits", "1Gi", status={**failed, "phase": "Queued"}, **common))
    await create(api, job("held", "1Gi", suspend=True, status={"phase": "Suspended"}, **common))
    pod = workload("pod", namespace=namespace, device_class=f"{pool}.gpu.partita.dev")
    await create_workload(api, *pod)
    (tmp_path / "1_gold.jsonl").write_bytes(line())

    async def log(*_, **__):
        yield b"done\xff\n"

    monkeypatch.setattr(Kube, "log", log)
    yield {"ns": namespace, "pool": pool, "tmp": tmp_path}
    for path in (f"gpupartitions/{pool}", f"gpuservers/{pool}-0"):
        await api.delete(f"/apis/partita.dev/v1alpha1/{path}")


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - WITHOUT - ELSEWHERE))
async def test_each_command_prints_what_its_schema_says(partita, invoke, scene, name: str) -> None:
    options = main.get_command(click.Context(main), name).params
    assert any(isinstance(option, OutputOption) for option in options)
    run = partita if any("--kubeconfig" in option.opts for option in options) else invoke
    result = run(name, *ARGUMENTS[name].format(**scene).split(), "-o", "json", code=None)
    result = await result if isawaitable(result) else result
    assert result.exit_code == (1 if name in {"doctor", "validate"} else 0), result.stderr
    assert json.loads(result.stdout)
