"""The agent that `bench.agent` measures: a process with nothing of the tests in it."""

import asyncio
import importlib
import sys
from pathlib import Path

from partita.import_trim import leave_out_unused


def load() -> None:
    """Import all that `partita agent` imports, the command itself included."""
    importlib.import_module("partita.cli.cluster.agent")
    leave_out_unused()
    importlib.import_module("partita.agent.main")


def main(folder: Path, name: str, namespace: str, kubeconfig: str, metrics_port: int) -> None:
    """Do what `partita agent` does, with the fake node's processes, until it is ended.

    It logs to a file: nobody reads its pipes meanwhile.
    """
    sys.stdout = sys.stderr = (folder / "agent.log").open("w")
    load()
    from partita.agent.main import run_agent
    from partita.agent.paths import Paths
    from partita.agent.settings import AgentSettings
    from partita.models import SharingMode
    from partita.process.logs import configure_logs

    configure_logs()
    settings = AgentSettings(
        server=name,
        mode=SharingMode.MPS,
        node="node-a",
        namespace=namespace,
        metrics_port=metrics_port,
        paths=Paths(name, folder / "run"),
        kubelet=folder / "kubelet-0",
        cdi=folder / "cdi",
        proc=folder / "proc",
        cgroups=folder / "cgroup",
    )
    asyncio.run(run_agent(settings, asyncio.Event(), kubeconfig))


if __name__ == "__main__":
    where, server, space, config, port = sys.argv[1:]
    main(Path(where), server, space, config, int(port))
