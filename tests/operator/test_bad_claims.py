"""What users get wrong in Pods with claims: the Pod or the claim says what to write instead.

kube-controller-manager, or what the embedded server has of it, creates the claims. What is wrong
with limits of containers is in `test_devices`, and what kubelet says in `tests/cluster`.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from partita.constants import ALLOCATION_GATE
from support.claims import claim_request
from support.operator import System
from support.workloads import CLAIMS

Body = dict[str, Any]


@dataclass(frozen=True)
class Namespace:
    """A user's namespace, and the partition that its claims are for."""

    system: System
    partition: str

    async def template(self, name: str, *requests: Body) -> None:
        """Create a ResourceClaimTemplate."""
        spec = {"spec": {"devices": {"requests": list(requests)}}}
        await self._create(
            CLAIMS, "resourceclaimtemplates", {"metadata": {"name": name}, "spec": spec}
        )

    async def claim(self, name: str, *requests: Body) -> None:
        """Create a ResourceClaim."""
        spec = {"devices": {"requests": list(requests)}}
        await self._create(CLAIMS, "resourceclaims", {"metadata": {"name": name}, "spec": spec})

    async def pod(
        self, name: str, *claims: Body, annotations: dict[str, str] | None = None
    ) -> None:
        """Create a Pod with claims."""
        entries = [{"name": f"claim-{index}", **claim} for index, claim in enumerate(claims)]
        uses = [{"name": entry["name"]} for entry in entries]
        notes = {f"partita.dev/{key}": text for key, text in (annotations or {}).items()}
        main = {"name": "main", "image": "example.org/serve:1", "resources": {"claims": uses}}
        spec = {
            "containers": [main],
            "resourceClaims": entries,
            "schedulingGates": [{"name": ALLOCATION_GATE}],
        }
        meta = {"name": name, "annotations": notes}
        await self._create("/api/v1", "pods", {"metadata": meta, "spec": spec})

    async def delete(self, name: str) -> None:
        """Delete a Pod."""
        path = f"/api/v1/namespaces/{self.system.namespace}/pods/{name}"
        (await self.system.api.delete(path, {"gracePeriodSeconds": 0})).ok()

    async def _create(self, group: str, plural: str, body: Body) -> None:
        path = f"{group}/namespaces/{self.system.namespace}/{plural}"
        (await self.system.api.post(path, body)).ok()

    def asks(self, memory: str | None = "8Gi", *, named: str = "", **fields: Any) -> Body:
        """Return a request for a slice of the partition, or of the device class that is named."""
        return claim_request(named or f"{self.partition}.gpu.partita.dev", memory=memory, **fields)

    async def pod_is_told(self, name: str, reason: str, *words: str) -> None:
        """Wait for an Event about a Pod with these words."""

        def events() -> list[tuple[str, str]]:
            return self.system.history.events(name)

        await self.system.history.until(
            lambda: any(
                why == reason and all(word in said for word in words) for why, said in events()
            ),
            what=events,
        )

    async def claim_says(self, reason: str, *words: str, of: str = "") -> None:
        """Wait until a claim, of this name or of a Pod of this name, says so."""

        def status() -> list[str]:
            return [
                claim["metadata"].get("annotations", {}).get("partita.dev/status", "")
                for claim in self.system.history.all("resourceclaims", self.system.namespace)
                if claim["metadata"]["name"].startswith(of)
            ]

        await self.system.history.until(
            lambda: any(
                said.startswith(f"{reason}: ") and all(word in said for word in words)
                for said in status()
            ),
            what=status,
        )

    @property
    def ledgers(self) -> list[str]:
        """Return the names of the claims that are allocated."""
        servers = self.system.history.all("gpuservers")
        return [
            entry["name"]
            for server in servers
            for entry in server.get("status", {}).get("allocations", {}).values()
        ]


@contextlib.asynccontextmanager
async def one_gpu(system: System, **spec: Any) -> AsyncIterator[Namespace]:
    """A partition of one GPU of 40 GB."""
    async with system.running(1):
        partition = await system.partition(**spec)
        await system.ready(partition)
        yield Namespace(system, partition)


def of(template: str) -> Body:
    return {"resourceClaimTemplateName": template}


@pytest.mark.parametrize(
    ("fields", "annotations", "reason", "words"),
    [
        ({"named": "nothing.gpu.partita.dev"}, {}, "PartitionNotFound", ["no GPUPartition nothing"]),
        ({}, {"gpu-threads": "150"}, "InvalidSpec",
         ["annotation partita.dev/gpu-threads", "write a number such as 50"]),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)  # fmt: skip
async def test_a_pod_and_its_claim_say_what_to_write_instead(
    system: System, fields: Any, annotations: Any, reason: str, words: list[str]
) -> None:
    async with one_gpu(system) as user:
        await user.template("bad", user.asks(**fields))
        await user.pod("bad", of("bad"), annotations=annotations)
        await user.pod_is_told("bad", reason, *words)
        await user.claim_says(reason, *words)
        assert not user.ledgers
        await user.delete("bad")


async def test_a_pod_that_comes_after_its_bad_claim_is_told_as_well(system: System) -> None:
    async with one_gpu(system) as user:
        await user.claim("bad", user.asks(count=2))
        await user.claim_says("InvalidSpec", "write count: 1", of="bad")
        for name in ("first", "second"):
            await user.pod(name, {"resourceClaimName": "bad"})
            await user.pod_is_told(name, "InvalidSpec", "write count: 1")
        for name in ("first", "second"):
            await user.delete(name)
            told = [reason for reason, _ in system.history.events(name)]
            assert told.count("InvalidSpec") == 1


async def test_a_pod_whose_template_is_missing_says_which(system: System) -> None:
    async with one_gpu(system) as user:
        await user.pod("bad", of("gpu-6gi"))
        await user.pod_is_told("bad", "FailedResourceClaimCreation", "gpu-6gi", "not found")
        await user.delete("bad")
        await user.template("ours", user.asks())
        await user.pod("both", of("ours"), of("nic"))
        await user.claim_says("Scheduling", "not all claims of its Pod exist yet", "ours, nic")
        assert not user.ledgers
        await user.template("nic", claim_request("nic.example.org"))
        await system.history.until(lambda: user.ledgers)
        await user.delete("both")


async def test_a_pod_gets_one_slice(system: System) -> None:
    async with one_gpu(system) as user:
        await user.template("ours", user.asks())
        await user.pod("two", of("ours"), of(f"partita-{user.partition}-6442450944"))
        words = "2 claims of Partita", "write one claim"
        await user.pod_is_told("two", "InvalidSpec", *words)
        assert not user.ledgers
        await user.delete("two")
