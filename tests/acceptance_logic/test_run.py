"""The whole of it as a program: what is missing, signals, what is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from acceptance.__main__ import main, write
from acceptance.assumptions import NO_CHECK, assumptions
from acceptance.bench import PROGRAM as CUDA_PROGRAM
from acceptance.bench import Bench
from acceptance.checks import CHECKS
from acceptance.checks.lifecycle import STATUS
from acceptance.preflight import MissingError, find_gpu, probe
from acceptance.report import render
from acceptance.results import Check, Findings, Outcome, Report, Result
from acceptance.session import run
from gpu.fake import MIB, FakeGPUs
from support.polling import TIMEOUT, poll

ROOT = Path(__file__).resolve().parents[2]
PATHS = os.pathsep.join(str(ROOT / name) for name in ("operator", "policies", "tests"))


def folders(gpus: FakeGPUs) -> list[Path]:
    return list(gpus.folder.glob("partita-gpu-*"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda gpus: (gpus.folder / "driver").unlink(), "no NVIDIA driver is loaded here"),
        (lambda gpus: (gpus.folder / "gpu-0").unlink(), "no GPU: the driver shows 0"),
        (lambda gpus: gpus.add(1), "the driver shows 2 GPUs: say which (--gpu)"),
        (lambda gpus: gpus.add(0, mig=1), "MIG mode is on"),
        (lambda gpus: gpus.processes((4242, MIB, 10, "C")), "in use by someone else: PID 4242"),
        (
            lambda gpus: (gpus.folder / "gpu-0.mode").write_text("3"),
            "the GPU's compute mode is not DEFAULT",
        ),
    ],
)
def test_what_stands_in_the_way_is_said(
    fake_gpus: FakeGPUs, change: Callable[[FakeGPUs], object], reason: str
) -> None:
    change(fake_gpus)
    with pytest.raises(MissingError) as caught:
        find_gpu("")
    assert any(reason in said for said in caught.value.reasons)


def test_a_gpu_that_cuda_cannot_use_is_said(bench: Bench, fake_gpus: FakeGPUs) -> None:
    found = find_gpu("")
    (fake_gpus.folder / "gpu-0.mode").write_text("2")
    with pytest.raises(MissingError, match=r"CUDA cannot use the GPU: .*DEVICE_UNAVAILABLE"):
        probe(found, CUDA_PROGRAM, bench.folder)


def tried(checks: list[Check], worker: tuple[str, ...], parent: str = "/tmp") -> Report:
    report = Report("2026-01-01")
    run(
        report,
        checks,
        gpu="",
        worker=worker,
        program=CUDA_PROGRAM,
        say=lambda _: None,
        parent=parent,
    )
    return report


def test_a_run_leaves_nothing_and_says_so(
    bench: Bench, worker: tuple[str, ...], fake_gpus: FakeGPUs
) -> None:
    report = tried([STATUS], worker, str(fake_gpus.folder))
    assert [(r.check, r.outcome) for r in report.results] == [
        ("mps-status", Outcome.PASSED),
        ("settings", Outcome.PASSED),
    ]
    assert report.code == 0
    assert folders(fake_gpus) == []
    poll(lambda: not fake_gpus.pids())


def test_a_setting_that_changed_meanwhile_fails(
    bench: Bench, worker: tuple[str, ...], fake_gpus: FakeGPUs
) -> None:
    def change(_bench: Bench, _findings: Findings) -> None:
        (fake_gpus.folder / "gpu-0.mode").write_text("3")

    report = tried([Check("vandal", "", "", change)], worker)
    assert report.results[-1].reason == "compute mode was 0 and is 3"
    assert report.code == 1


PROGRAM = """
import sys
from pathlib import Path
from acceptance import __main__ as program
from acceptance import session
from functools import partial
program.run = partial(program.run, parent=sys.argv[2])
program.WORKER = tuple(sys.argv[3:])
session.Bench = partial(session.Bench, seconds=0.05, neighbour_seconds=600, ends_within=0.5)
sys.exit(program.main(["--only", "memory-limit", "--only", "pairs", "--out", sys.argv[1]]))
"""


def outcomes(folder: Path) -> list[tuple[str, ...]]:
    """Read the table of checks and their outcomes from the report."""
    lines = (folder / "gpu-acceptance.md").read_text().splitlines()
    first = lines.index("| check | outcome | seconds |") + 2
    rows = lines[first : lines.index("", first)]
    return [tuple(cell.strip() for cell in row.split("|")[1:3]) for row in rows]


def test_a_signal_ends_all_and_the_report_says_what_is_missing(
    bench: Bench, worker: tuple[str, ...], fake_gpus: FakeGPUs, tmp_path: Path
) -> None:
    child = fake_gpus.start(
        sys.executable, "-c", PROGRAM, tmp_path, fake_gpus.folder, *worker, PYTHONPATH=PATHS
    )
    # Both clients are there, and the neighbour computes.
    poll(lambda: sum(m > 4096 * MIB for m in fake_gpus.pids().values()) == 1)
    child.send_signal(signal.SIGTERM)
    out, err = child.communicate(timeout=TIMEOUT)
    assert (child.returncode, err) == (128 + signal.SIGTERM, "")
    assert "Stopped by SIGTERM; what was started has been ended." in out
    assert outcomes(tmp_path) == [
        ("memory-limit", "**not run**"),
        ("pairs", "**not run**"),
        ("settings", "passed"),
    ]
    assert folders(fake_gpus) == []
    poll(lambda: (fake_gpus.folder / "gpu-0.processes").read_text() == "")


def test_a_python_with_nothing_installed_gets_a_clear_sentence(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-S", "-m", "acceptance", "--out", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": PATHS},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (2, "")
    assert ran.stdout.splitlines() == [
        "The acceptance on a GPU was not run, for it cannot be run here:",
        "- pynvml (nvidia-ml-py) is missing: `pynvml` cannot be imported by this Python",
    ]
    assert list(tmp_path.iterdir()) == []


def test_a_report_of_absence_opens_with_the_reason(tmp_path: Path) -> None:
    assert main(["--absent", "no GPU machine was lent", "--out", str(tmp_path)]) == 2
    text = (tmp_path / "gpu-acceptance.md").read_text()
    assert text.splitlines()[0] == (
        "# Acceptance on a real GPU: not run, because no GPU was available"
    )
    assert text.splitlines()[2:5] == [
        "**Not run: none of these checks has run on a real GPU.** The reason:",
        "",
        "- no GPU machine was lent",
    ]
    assert all(f"## {check.name}" in text for check in CHECKS)
    page = (ROOT / "docs" / "gpu-acceptance.md").read_text()
    for each in assumptions():
        assert each.check in {NO_CHECK, *(check.name for check in CHECKS)}
        assert " ".join(each.text.split()[:8]) in " ".join(text.split())
        assert " ".join(each.text.split()[:8]) in " ".join(page.split()), "make test-gpu"


def test_a_report_opens_with_what_was_not_run(tmp_path: Path) -> None:
    report = Report("2026-01-01", "NVIDIA H200", "580.1")
    report.results = [
        Result("one", "did", "hoped", Outcome.PASSED),
        Result("two", "did", "hoped", Outcome.NOT_RUN, "the MPS program is missing"),
        Result("three", "did", "hoped", Outcome.FAILED, "it fell"),
        Result("four", "did", "hoped", Outcome.NOT_APPLICABLE, "driver 580 is too old"),
    ]
    write(report, tmp_path)
    lines = render(report).splitlines()
    assert lines[2:13] == [
        "**Not run, or only in part:**",
        "",
        "- two: the MPS program is missing",
        "",
        "**Failed:**",
        "",
        "- three: it fell",
        "",
        "**Not applicable to this GPU and driver:**",
        "",
        "- four: driver 580 is too old",
    ]
    assert "| NVIDIA H200 | 580.1 | 2026-01-01 |" in lines
    assert report.code == 1


def test_runs_with_nothing_installed_but_pynvml_and_torch(
    bench: Bench, worker: tuple[str, ...], fake_gpus: FakeGPUs, tmp_path: Path
) -> None:
    installed = tmp_path / "installed"
    (installed / "torch").mkdir(parents=True)
    (installed / "torch" / "__init__.py").touch()
    (installed / "pynvml.py").symlink_to(str(sys.modules["pynvml"].__file__))
    # What reads NVML, what speaks to MPS, and the model of interference.
    program = PROGRAM.replace("memory-limit", "mps-status")
    child = fake_gpus.start(
        sys.executable,
        "-S",
        "-c",
        program,
        tmp_path,
        fake_gpus.folder,
        *worker,
        PYTHONPATH=f"{PATHS}{os.pathsep}{installed}",
    )
    out, err = child.communicate(timeout=TIMEOUT)
    assert (child.returncode, err) == (0, ""), out
    assert outcomes(tmp_path) == [
        ("mps-status", "passed"),
        ("pairs", "passed"),
        ("settings", "passed"),
    ]
