"""What a container of a Pod with a slice sees: its user, its mounts and its variables."""

from __future__ import annotations

from cluster import nvidia_runtime

__all__ = ["LOOK_AROUND", "check_inside"]

LOOK_AROUND = (
    "exec 2>&1; id -u; "
    "while read -r _ _ _ from at _; do echo mount $at $from; done </proc/self/mountinfo; "
    "echo; env"
)
"""A shell command that prints it. All that a container writes is one stream then: in its log, the
order of two is not defined."""

DRIVER_LIBRARY = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
DRIVER_STATE = nvidia_runtime.STATE
"""What NVIDIA's runtime brings."""

MOUNTS = {
    "/",
    "/dev",
    "/dev/mqueue",
    "/dev/shm",
    "/dev/termination-log",
    "/etc/hostname",
    "/etc/hosts",
    "/etc/resolv.conf",
    "/proc",
    "/sys",
    "/var/run/secrets/kubernetes.io/serviceaccount",
}
"""What kubelet and containerd mount into every container."""

VARIABLES = {"HOME", "HOSTNAME", "PATH", "PWD", "SHLVL"}
"""What the shell and every container have; and what begins with KUBERNETES_."""


def check_inside(said: str, *, uuid: str, mebibytes: int, threads: int) -> dict[str, str]:
    """Compare what `LOOK_AROUND` printed with what a Pod of user 1000 is to see of its slice.

    Returns
    -------
    dict of str to str
        What more variables it sees.
    """
    first, _, rest = said.partition("\n\n")
    user, *mounts = first.splitlines()
    assert user == "1000"
    variables = dict(line.split("=", 1) for line in rest.splitlines() if "=" in line)
    ours = {
        "NVIDIA_VISIBLE_DEVICES": uuid,
        "CUDA_MPS_PIPE_DIRECTORY": f"/run/partita/{uuid}/pipe",
        "CUDA_MPS_LOG_DIRECTORY": f"/run/partita/{uuid}/log",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={mebibytes}M",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(threads),
        "CUDA_DEVICE_MAX_CONNECTIONS": "2",
    }
    assert {name: variables.get(name) for name in ours} == ours
    places = dict(line.removeprefix("mount ").split(" ", 1) for line in mounts)
    assert "/partita/" not in places["/dev/shm"], "it is the Pod's own"
    assert places[f"/run/partita/{uuid}/pipe"].endswith(f"/partita/{uuid}/pipe")
    assert {place for place in places if place not in MOUNTS and not inner(place)} == {
        f"/run/partita/{uuid}/pipe",
        DRIVER_STATE,
        DRIVER_LIBRARY,
    }
    return {
        name: value
        for name, value in variables.items()
        if name not in {*ours, *VARIABLES} and not name.startswith("KUBERNETES_")
    }


def inner(place: str) -> bool:
    """Say whether a mount is one of the container's own file systems' parts."""
    return place.startswith(("/dev/pts", "/proc/", "/sys/"))
