"""What a program imports."""

import subprocess
import sys

__all__ = ["imported"]


def imported(code: str) -> set[str]:
    """Return the names of all modules that some code imports in a process of its own."""
    command = [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())
