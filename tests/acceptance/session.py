"""One run: what is missing, the checks one after the other, and nothing left behind."""

from __future__ import annotations

import shutil
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path

from acceptance.bench import Bench
from acceptance.children import Stopped, undisturbed
from acceptance.clients import ClientError
from acceptance.preflight import find_gpu, find_mps, probe, probe_torch, settings
from acceptance.results import CannotRunError, Check, Findings, Outcome, Report, Result
from partita.agent.errors import AgentError

__all__ = ["SETTINGS", "run", "run_check"]

SETTINGS = Check(
    name="settings",
    done="Compute mode, MIG, persistence, ECC, power limit and application clocks were read "
    "before the first check and after the last one.",
    expected="All are what they were: nothing here changes a setting of the GPU.",
    run=lambda _bench, _findings: None,
)


def run(
    report: Report,
    checks: Iterable[Check],
    *,
    gpu: str,
    worker: tuple[str, ...],
    program: tuple[str, ...],
    say: Callable[[str], None],
    parent: str = "/tmp",
) -> None:
    """Find the GPU, run the checks and fill the report, as far as it comes.

    Parameters
    ----------
    gpu
        Index or UUID; empty for the only one.
    worker, program
        Commands of the programs that use the GPU, with torch and without it.
    parent
        Where the run's directory is made: short, for there are sockets in it (see `mps.Daemon`),
        so not where TMPDIR may say.

    Raises
    ------
    MissingError
        If nothing can be run.
    Stopped
        If a signal came; the report has what was found before, and says of the rest why not.
    """
    found = find_gpu(gpu)
    folder = Path(tempfile.mkdtemp(prefix="partita-gpu-", dir=parent))
    try:
        folder.chmod(0o755)
        before = settings(found.gpu)
        report.gpu, report.driver = found.identity.product, found.driver
        probe(found, program, folder)
        no_torch = probe_torch(found, worker, folder)
        report.facts = {
            "UUID": found.identity.uuid,
            "memory, MiB": found.identity.memory >> 20,
            **{k: v for k, v in found.facts.items() if k not in {"pid", "gpu"}},
            **{f"{key}, untouched": value for key, value in before.items()},
        }
        no_mps = find_mps(found)
        bench = Bench(
            found.gpu,
            found.identity,
            folder,
            no_mps,
            worker,
            driver=found.driver,
            cuda=found.cuda,
            no_torch=no_torch,
            program=program,
        )
        stopped: Stopped | None = None
        for check in checks:
            if stopped is not None:
                reason = f"stopped by {stopped.name}"
                report.results.append(_result(check, Outcome.NOT_RUN, reason))
                continue
            try:
                result = run_check(check, bench)
            except Stopped as error:
                stopped = error
                result = _result(check, Outcome.NOT_RUN, f"stopped by {error.name} while it ran")
            report.results.append(result)
            say(f"{check.name}: {result.outcome}{': ' if result.reason else ''}{result.reason}")
        after = settings(found.gpu)
        changed = [
            f"{k} was {before[k]} and is {after[k]}" for k in before if before[k] != after[k]
        ]
        outcome = Outcome.FAILED if changed else Outcome.PASSED
        report.results.append(_result(SETTINGS, outcome, "; ".join(changed)))
        if stopped is not None:
            raise stopped
    finally:
        with undisturbed():
            shutil.rmtree(folder, ignore_errors=True)


def run_check(check: Check, bench: Bench) -> Result:
    """Run one check; whatever goes wrong in it is its result, and no other's."""
    for requirement in check.requires:
        if unmet := requirement(bench):
            return _result(check, unmet.outcome, unmet.reason)
    findings = Findings()
    began = time.monotonic()
    try:
        check.run(bench, findings)
    except CannotRunError as error:
        findings.missing.append(str(error))
    except (ClientError, AgentError) as error:
        findings.failures.append(str(error))
    except Exception as error:  # noqa: BLE001 - the next check is to have its turn
        where = traceback.extract_tb(error.__traceback__)[-1]
        findings.failures.append(
            f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
        )
    if findings.failures:
        outcome = Outcome.FAILED
    else:
        outcome = Outcome.NOT_RUN if findings.missing else Outcome.PASSED
    reason = "; ".join([*findings.failures, *findings.missing]).replace("\n", " ")
    return _result(check, outcome, reason, time.monotonic() - began, findings)


def _result(
    check: Check,
    outcome: Outcome,
    reason: str,
    seconds: float = 0.0,
    findings: Findings | None = None,
) -> Result:
    found = findings or Findings()
    return Result(
        check.name,
        check.done,
        check.expected,
        outcome,
        reason,
        round(seconds, 1),
        found.figures,
        tuple(found.tables),
    )
