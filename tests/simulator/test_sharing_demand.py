"""What was given to Pods is compared with what they asked for, and with what the GPUs have."""

from bench.peers.sharing_demand import Packed, Share, demand, fewest_gpus, memory_of, packed

HALVES = {"pod-0": 50, "pod-1": 50, "pod-2": 50}


def test_five_pods_a_gpu_leave_a_tenth_of_the_gpus_free():
    assert fewest_gpus(demand(500)) == 90


def test_each_pod_has_its_own_place():
    shares = {"pod-0": half("a"), "pod-1": half("a"), "pod-2": half("b")}
    assert packed(HALVES, shares) == Packed(gpus=2, overfull=0, wrong=0)


def test_a_gpu_with_too_much_memory_given_away_is_overfull():
    shares = {name: half("a") for name in HALVES}
    assert packed(HALVES, shares) == Packed(gpus=1, overfull=1, wrong=0)


def test_a_gpu_with_too_much_compute_given_away_is_overfull():
    shares = {name: Share("a", memory=1, compute=50) for name in HALVES}
    assert packed(HALVES, shares) == Packed(gpus=1, overfull=1, wrong=3)


def test_a_pod_without_a_share_counts_as_wrong():
    assert packed(HALVES, {"pod-0": half("a")}) == Packed(gpus=1, overfull=0, wrong=2)


def half(gpu):
    return Share(gpu, memory_of(50), 50)
