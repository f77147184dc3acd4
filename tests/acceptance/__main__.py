"""`make test-gpu`: runs the checks, prints what came of them and writes the report."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

from acceptance.bench import PROGRAM, WORKER
from acceptance.checks import CHECKS
from acceptance.children import Stopped, stop_on_signals
from acceptance.preflight import MissingError
from acceptance.report import render
from acceptance.results import Outcome, Report, Result
from acceptance.session import run

DOCS = Path(__file__).resolve().parents[2] / "docs"
NAME = "gpu-acceptance"


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    made = argparse.ArgumentParser(prog="make test-gpu", description=__doc__)
    made.add_argument("--gpu", default="", help="index or UUID, where there are several")
    made.add_argument("--out", type=Path, default=DOCS, help="folder for the report")
    made.add_argument(
        "--only", action="append", default=[], choices=[c.name for c in CHECKS], help="this check"
    )
    made.add_argument(
        "--absent", metavar="REASON", help="write a report that says that there was no GPU, and why"
    )
    return made


def say(text: str) -> None:
    """Print at once: a machine may be taken away at any time."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def write(report: Report, folder: Path) -> None:
    """Write the report."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{NAME}.md").write_text(render(report), encoding="utf-8")
    say(f"Written: {folder / NAME}.md")


def absent(report: Report, reasons: list[str]) -> None:
    """Say of every check that it was not run."""
    report.absent = reasons
    report.results = [
        Result(check.name, check.done, check.expected, Outcome.NOT_RUN, "no GPU")
        for check in CHECKS
    ]


def main(arguments: list[str] | None = None) -> int:
    """Return 0 if all that applies passed, 1 if not, 2 if nothing could be run."""
    given = parser().parse_args(arguments)
    report = Report(date=datetime.now(UTC).strftime("%Y-%m-%d"))
    if given.absent:
        absent(report, [given.absent])
        write(report, given.out)
        return report.code
    stop_on_signals()
    checks = [check for check in CHECKS if not given.only or check.name in given.only]
    try:
        run(report, checks, gpu=given.gpu, worker=WORKER, program=PROGRAM, say=say)
    except MissingError as error:
        # An earlier report is not overwritten by one that says nothing.
        say("The acceptance on a GPU was not run, for it cannot be run here:")
        for reason in error.reasons:
            say(f"- {reason}")
        return 2
    except Stopped as error:
        if report.results:
            write(report, given.out)
        say(f"Stopped by {error.name}; what was started has been ended.")
        return 128 + error.number
    write(report, given.out)
    passed = sum(result.outcome is Outcome.PASSED for result in report.results)
    say(f"{passed} of {len(report.results)} checks passed")
    return report.code


if __name__ == "__main__":
    sys.exit(main())
