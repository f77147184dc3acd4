"""Memory limits of the driver for a cgroup: they hold, what they do not count, what they leave."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from acceptance.bench import MIB, Bench
from acceptance.cgroups import backend, leaf, limits, own_cgroup, remove, set_limits
from acceptance.clients import Client
from acceptance.requirements import needs_cgroups, needs_driver, needs_mps, needs_root
from acceptance.results import Check, Findings

__all__ = ["DRIVER_LIMITS"]

_LIMIT = 4096
"""MiB of the limit."""
_CONTEXT = 1024
"""MiB by which a program may stay below the limit, for the context of each process. An
assumption."""
_NO_SUCH_GPU = "GPU-00000000-0000-0000-0000-000000000000"
_REQUIRED = (needs_driver(615, "memory limits for cgroups"), needs_root, needs_cgroups)


def _fill(client: Client, *, managed: bool = False) -> int:
    """Allocate up to twice the limit; return the MiB that were granted."""
    return int(client.ask("fill", mib=2 * _LIMIT, managed=managed)["held"])


def _limited(bench: Bench, parent: Path, name: str, *, soft: int = _LIMIT) -> Path:
    folder = leaf(parent, name)
    set_limits(bench.gpu, folder, soft=soft * MIB, hard=_LIMIT * MIB)
    return folder


def _escapes(bench: Bench, findings: Findings) -> None:
    rows: list[tuple[str, int]] = []
    with ExitStack() as stack:
        parent = stack.enter_context(own_cgroup())
        daemon = stack.enter_context(bench.daemon()) if not bench.no_mps else None
        pipes = None if daemon is None else daemon.client_pipes
        tried: dict[str, tuple[Path | None, dict[str, str]]] = {
            "no MPS variables": (None, {}),
            "an empty pipe directory": (bench.new_folder(), {}),
        }
        if pipes is not None:
            tried |= {
                "an MPS client": (pipes, {}),
                "an MPS limit above that of the cgroup": (
                    pipes,
                    {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={4 * _LIMIT}M"},
                ),
                "an MPS limit for a GPU that it does not see": (
                    pipes,
                    {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0=1G,{_NO_SUCH_GPU}=1G"},
                ),
            }
        for number, (what, (where, variables)) in enumerate(tried.items()):
            folder = _limited(bench, parent, f"escape-{number}")
            with bench.start(where, cgroup=folder, variables=variables) as client:
                rows.append((what, _fill(client.ready())))
            set_limits(bench.gpu, folder, soft=0, hard=_LIMIT * MIB)
        folder = _limited(bench, parent, "several")
        with bench.start(pipes, cgroup=folder) as first:
            child = first.ready().ask("again", mib=2 * _LIMIT)["granted"]
            with bench.start(pipes, cgroup=folder) as second:
                second.ready()
                together = _fill(first) + _fill(second)
        rows += [("a process that it starts", child), ("two processes together", together)]
        folder = _limited(bench, parent, "managed")
        with bench.start(pipes, cgroup=folder) as client:
            managed = _fill(client.ready(), managed=True)
        for name in ("several", "managed"):
            set_limits(bench.gpu, parent / name, soft=0, hard=_LIMIT * MIB)
    findings.figures["backend"] = backend(parent)
    findings.table(
        f"MiB granted below a limit of {_LIMIT} MiB",
        ("a program with", "granted"),
        [*rows, ("managed memory, which NVIDIA does not count on the GPU", managed)],
    )
    for what, granted in rows:
        findings.expect(granted <= _LIMIT, f"{what}: {granted} MiB were granted")
        findings.expect(
            granted >= _LIMIT - 2 * _CONTEXT, f"{what}: only {granted} MiB were granted"
        )


def _total(bench: Bench, findings: Findings) -> None:
    with own_cgroup() as parent:
        folder = _limited(bench, parent, "leaf")
        with bench.start(cgroup=folder) as client:
            own = client.ready().facts["total"]
        set_limits(bench.gpu, folder, soft=0, hard=_LIMIT * MIB)
        below = leaf(parent, "unlimited")
        set_limits(bench.gpu, parent, soft=0, hard=_LIMIT * MIB)
        with bench.start(cgroup=below) as client:
            inherited = client.ready().facts["total"]
    whole = bench.identity.memory // MIB
    findings.figures |= {
        "the GPU's memory, MiB": whole,
        "total with a limit on the program's own cgroup, MiB": own,
        "total with a limit on the cgroup above, MiB": inherited,
    }
    findings.expect(own == _LIMIT, f"the total is {own} MiB with a limit of {_LIMIT} MiB")


def _soft(bench: Bench, findings: Findings) -> None:
    rows = []
    with own_cgroup() as parent:
        kind = backend(parent)
        for name, soft in (("soft equal to hard", _LIMIT), ("soft 0", 0)):
            folder = _limited(bench, parent, f"soft-{soft}", soft=soft)
            with bench.start(cgroup=folder) as client:
                granted = _fill(client.ready())
            during = _above(bench, parent)
            # As a container runtime does it: the cgroup goes, and nobody sets its limit to 0.
            remove(folder)
            left = _above(bench, parent)
            rows.append((name, granted, during, left))
            if left:
                set_limits(bench.gpu, parent, soft=0, hard=bench.identity.memory)
        repaired = _above(bench, parent)
    findings.figures |= {"backend": kind, "after the repair, MiB": repaired}
    findings.table(
        "Reservation of the cgroup above, MiB",
        ("limits of the leaf", "granted, MiB", "while the leaf exists", "after its removal"),
        rows,
    )
    findings.expect(not repaired, "setting the ancestor's soft limit to 0 did not repair it")
    for name, granted, _, _ in rows:
        findings.expect(granted <= _LIMIT, f"{name}: {granted} MiB were granted")


def _above(bench: Bench, folder: Path) -> int:
    found = limits(bench.gpu, folder)
    return 0 if found is None else found.soft // MIB


def _mps_clients(bench: Bench, findings: Findings) -> None:
    with own_cgroup() as parent, bench.daemon() as daemon:
        folder = _limited(bench, parent, "client")
        with (
            bench.start(daemon.client_pipes, cgroup=folder) as limited,
            bench.start(daemon.client_pipes) as free,
        ):
            total = limited.ready().facts["total"]
            free.ready()
            granted, counted = _fill(limited), limits(bench.gpu, folder)
            beside = _fill(free)
        set_limits(bench.gpu, folder, soft=0, hard=_LIMIT * MIB)
    findings.figures |= {
        "granted to the limited client, MiB": granted,
        "total that it sees, MiB": total,
        "use that the driver counts for its cgroup, MiB": counted and counted.used // MIB,
        "granted to a client without a limit, MiB": beside,
    }
    findings.expect(granted <= _LIMIT, f"{granted} MiB were granted")
    findings.expect(bool(granted), "a client below its limit gets nothing")
    findings.expect(beside > _LIMIT, "the limit also holds for a client of another cgroup")


DRIVER_LIMITS = (
    Check(
        name="driver-limit-escapes",
        done=f"The driver limits a cgroup to {_LIMIT} MiB (nvmlDeviceSetMemoryLimits_v1). Programs "
        "in it try to get more: without MPS, with other MPS variables, in several processes, with "
        "managed memory.",
        expected="None gets more than the limit, together or alone, except managed memory, which "
        "NVIDIA excludes.",
        run=_escapes,
        requires=_REQUIRED,
    ),
    Check(
        name="driver-limit-total",
        done="A program asks cuMemGetInfo, with a limit on its own cgroup and with one on the "
        "cgroup above.",
        expected="With a limit on its own cgroup the total is the limit. The report says what it is "
        "with a limit above.",
        run=_total,
        requires=_REQUIRED,
    ),
    Check(
        name="driver-limit-soft",
        done="A cgroup with a hard limit, and a soft limit equal to it or 0, is used and removed. "
        "Then the soft limit of the cgroup above is set to 0.",
        expected="The hard limit holds with both. What is left in the cgroup above can be removed. "
        "The report says whether a soft limit of 0 leaves nothing there.",
        run=_soft,
        requires=_REQUIRED,
    ),
    Check(
        name="driver-limit-mps-v2",
        done=f"A client of an MPS daemon of protocol 2 runs in a cgroup limited to {_LIMIT} MiB, "
        "another one outside it.",
        expected="The limit holds for the client in the cgroup and not for the other one.",
        run=_mps_clients,
        requires=(*_REQUIRED, needs_mps),
    ),
)
