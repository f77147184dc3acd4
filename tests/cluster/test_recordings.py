"""The operator's recordings are read out of its Pod as the page on installation says."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

from cluster.cluster import Cluster
from cluster.images import ROOT
from cluster.jobs import Jobs
from docs.pages import read_page
from support.clusters import find_kubectl


async def test_the_pages_commands_fetch_recordings_that_replay_reads(
    cluster: Cluster, jobs: Jobs, tmp_path: Path
):
    await jobs.submit_command("train", ["sh", "-c", "exit 0"])
    await jobs.reaches("train", "Succeeded")
    page = read_page(ROOT / "docs" / "how-to" / "install.md")
    fetch, read, replay = [
        command.text
        for command in page.commands
        if "partita-operator -o json" in command.text or "recordings" in command.text
    ]
    kubectl = find_kubectl()
    assert kubectl is not None
    done = await asyncio.to_thread(
        subprocess.run,
        ["bash", "-euo", "pipefail", "-c", f"{fetch}\n{read}\n{replay}"],
        env={
            "PATH": f"{kubectl.parent}:{ROOT / '.venv' / 'bin'}:/usr/bin:/bin",
            "KUBECONFIG": str(cluster.plane.kubeconfig),
            "HOME": str(tmp_path),
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "recordings").iterdir())
    assert "fifo" in done.stdout
