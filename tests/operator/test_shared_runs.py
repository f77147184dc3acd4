"""What ran together is measured on the nodes, and policies and `partita advise` see it."""

from __future__ import annotations

import asyncio
import json

from click.testing import CliRunner

from partita.cli import main
from partita_policies.recordings import Recorded, read_recordings
from support.history import GROUP_PATH
from support.polling import until
from support.queues import LONG
from support.system import System


async def test_a_run_beside_another_corrects_later_predictions(system: System, tmp_path) -> None:
    path = f"{GROUP_PATH}/namespaces/{system.namespace}/applicationprofiles"

    async def measured(application: str) -> dict:
        items = (await system.api.get(path)).ok().body["items"]
        found = [i["spec"] for i in items if i["spec"]["application"] == application]
        return found[0]["measurements"][0] if found else {}

    async def has(application: str, field: str) -> None:
        async def is_measured() -> bool:
            return field in await measured(application)

        await until(is_measured, what=field)

    async with system.nodes(1), system.operator(record=tmp_path / "recordings"):
        partition = await system.partition()

        async def submit(name: str, application: str, duration: str = "20s"):
            sim = {"duration": duration, "memory": "1Gi", "gpu": "90"}
            return await system.job(
                name, partition, gpuMemory="2Gi", application=application, sim=sim
            )

        for application in ("one", "two"):
            await (await submit(f"{application}-alone", application)).succeeds()
            await has(application, "undisturbed")
        beside = await submit("beside", "two", **LONG)
        await beside.runs()
        await (await submit("shared", "one")).succeeds()
        await has("one", "sharedRuns")
        await beside.delete()
        await (await submit("last", "one")).succeeds()
        shown = await asyncio.to_thread(CliRunner().invoke, main, ["advise", "-o", "json"])
        await system.settle()
    assert shown.exit_code == 0, shown.output
    seen = [s for gpu in json.loads(shown.stdout)["gpus"] for s in gpu["seenTogether"]]
    assert {"one beside two"} <= {f"{s['name']} beside {s['beside']}" for s in seen}
    snapshots = [
        one.snapshot
        for one in read_recordings([tmp_path / "recordings"])
        if isinstance(one, Recorded)
    ]
    last = next(j for s in snapshots for j in s.jobs if j.name.endswith("/last"))
    assert last.profile is not None
    (pair,) = last.profile.co_runs
    assert (pair.application, pair.samples > 0.5) == ("two", True)
    # Simulated jobs need the SMs for as long as they keep the GPU busy. A profile without their
    # occupancy does not show that: the prediction assumes less (`interference.SM_OF_BUSY`).
    assert 1.1 < pair.ratio < 1.6
