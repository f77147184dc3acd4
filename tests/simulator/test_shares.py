"""What was given to Pods is compared with what they asked for, and with what the GPUs have."""

import pytest

from bench.peers.demand import Packed, Share, demand, fewest_gpus, memory_of, packed
from bench.peers.hami import share_of
from bench.peers.kai import shares_of

HALVES = {"pod-0": 50, "pod-1": 50, "pod-2": 50}
RUNNING = {"metadata": {"name": "pod-0"}, "spec": {"nodeName": "node-0"}}
GIVEN = {
    "metadata": {"ownerReferences": [{"name": "pod-0"}]},
    "data": {"NVIDIA_VISIBLE_DEVICES": "GPU-3", "GPU_PORTION": "0.10"},
}


def test_five_pods_a_gpu_leave_a_tenth_of_the_gpus_free():
    assert fewest_gpus(demand(500)) == 90


def half(gpu):
    return Share(gpu, memory_of(50), 50)


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        pytest.param(
            {"pod-0": half("a"), "pod-1": half("a"), "pod-2": half("b")},
            Packed(gpus=2, overfull=0, wrong=0),
            id="each has its place",
        ),
        pytest.param(
            {name: half("a") for name in HALVES},
            Packed(gpus=1, overfull=1, wrong=0),
            id="too much memory is given away",
        ),
        pytest.param(
            {name: Share("a", memory=1, compute=50) for name in HALVES},
            Packed(gpus=1, overfull=1, wrong=3),
            id="too much compute is given away",
        ),
        pytest.param(
            {"pod-0": half("a")}, Packed(gpus=1, overfull=0, wrong=2), id="two have no share"
        ),
    ],
)
def test_gpus_that_are_overfull_and_shares_that_are_wrong_are_counted(shares, expected):
    assert packed(HALVES, shares) == expected


def test_hami_s_share_is_read_past_containers_without_a_gpu():
    assert share_of(";GPU-1,NVIDIA,16384,20:;") == Share("GPU-1", memory=16, compute=20)


def test_kai_s_pod_has_the_gpu_and_the_part_that_its_config_map_names():
    empty = {"metadata": {"ownerReferences": [{"name": "pod-0"}]}}
    assert shares_of([RUNNING], [GIVEN, empty]) == {"pod-0": Share("GPU-3", 8, 10)}


@pytest.mark.parametrize(
    "changed", [{"spec": {}}, {"metadata": {"name": "pod-0", "deletionTimestamp": "now"}}]
)
def test_kai_s_pod_that_is_not_bound_or_being_deleted_has_no_share(changed):
    assert shares_of([RUNNING | changed], [GIVEN]) == {}
