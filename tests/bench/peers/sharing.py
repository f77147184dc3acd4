"""Fractions of GPUs for thousands of Pods at once: how soon, at what cost, how well packed.

Each subject gets the same nodes of eight GPUs, and the same Pods in the same order, submitted as
fast as the API server takes them. Where the Pods stand is read from what the subject wrote.

The peers are Kubernetes alone, with devices that several claims consume (DRAConsumableCapacity), and
HAMi and KAI if their programs are given: the Go module proxy, from which all others are built, has
neither's module. Volcano 1.14 with virtual GPUs was tried; it stopped at 67 of 80 Pods on 16 GPUs
for a reason that was not found, so it is not compared.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from bench.compare import Contest
from bench.load import Work
from bench.peers.demand import NAMESPACE, demand
from bench.peers.hami import HamiPods
from bench.peers.kai import KaiFractions
from bench.peers.kubernetes import KubernetesClaims
from bench.peers.partita import PartitaClaims, PartitaJobs
from bench.peers.sharer import NOT_BOUND, OVERFULL, Sharer
from bench.report import Targets
from bench.stage import RECOMMENDED, UNLIMITED

__all__ = ["sharing"]

TARGETS = Targets(wall=0.5, cpu=0.5, figures={NOT_BOUND: 0, OVERFULL: 0})


def sharing(given: argparse.Namespace) -> Iterator[Contest]:
    """Yield placements of `given.pods` Pods on `given.gpus` GPUs, with throttles and without."""
    works = [Work(NAMESPACE, name, percent) for name, percent in demand(given.pods).items()]
    for throttles in (UNLIMITED, RECOMMENDED):
        subjects: list[Sharer] = [KubernetesClaims(packs=packs) for packs in (False, True)]
        subjects += [PartitaClaims(), PartitaJobs()]
        if given.hami:
            subjects += [HamiPods(given.hami, packs=packs) for packs in (False, True)]
        if given.kai:
            subjects.append(KaiFractions(given.kai))
        for subject in subjects:
            subject.pods = given.pods
        title = f"{given.pods} Pods with fractions of {given.gpus} GPUs, {throttles.name}"
        yield Contest(title, subjects, throttles, works, given.gpus, TARGETS, warm=[])
