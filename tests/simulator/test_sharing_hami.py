"""What HAMi gave to a Pod is read from its annotation."""

from bench.peers.sharing_demand import Share
from bench.peers.sharing_hami import share_of


def test_a_share_is_read_in_gibibytes_and_percent():
    assert share_of("GPU-1,NVIDIA,16384,20:;") == Share("GPU-1", memory=16, compute=20)


def test_containers_without_a_gpu_are_passed_over():
    assert share_of(";GPU-1,NVIDIA,8192,10:;") == Share("GPU-1", memory=8, compute=10)
