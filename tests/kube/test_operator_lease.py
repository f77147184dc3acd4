"""What is reported about the operator, from its Lease."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from partita.kube.errors import ForbiddenError, KubernetesError, NotFoundError, UnavailableError
from partita.kube.operator_lease import check_operator, operator_problem
from partita.models.quantities import format_time

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def lease(holder: str = "pod-1", age: float = 0.0, duration: int = 12) -> dict[str, Any]:
    renewed = format_time(NOW - timedelta(seconds=age))
    spec = {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": duration}
    return {"spec": spec}


@pytest.mark.parametrize("age", [-5, 0, 12, 20])
def test_an_operator_that_renews_its_lease_runs(age: float) -> None:
    assert not operator_problem(lease(age=age), "partita-system", NOW)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (None, "No operator is running: namespace gpus has no Lease partita-operator."),
        (lease(age=312), "No operator is running: the Lease of pod-1 expired 300 s ago."),
        (lease(holder=""), "No operator is running: the last one has stopped."),
        ({"spec": {"holderIdentity": "pod-1"}}, "No operator is running: its Lease cannot be read"),
        (
            {"spec": {"holderIdentity": "pod-1", "renewTime": "soon"}},
            "No operator is running: its Lease cannot be read",
        ),
    ],
)
def test_a_missing_or_expired_lease_is_reported(found: Any, message: str) -> None:
    problem = operator_problem(found, "gpus", NOW)
    assert problem.startswith(message)
    assert "PARTITA_NAMESPACE" in problem or "`kubectl -n gpus get pods`" in problem


class Leases:
    def __init__(self, error: KubernetesError) -> None:
        self.error = error
        self.asked: list[str] = []

    async def get(self, _kind: Any, name: str, namespace: str) -> dict[str, Any]:
        self.asked.append(f"{namespace}/{name}")
        raise self.error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (NotFoundError("get", 404, "no"), "No operator is running"),
        (ForbiddenError("get", 403, "no"), ""),
        (UnavailableError("get", 503, "busy"), "could not be checked"),
    ],
)
async def test_what_cannot_be_read_is_no_false_alarm(
    monkeypatch: pytest.MonkeyPatch, error: KubernetesError, message: str
) -> None:
    monkeypatch.setenv("PARTITA_NAMESPACE", "gpus")
    kube = Leases(error)
    problem = await check_operator(kube)  # type: ignore[arg-type]
    assert message in problem
    assert bool(problem) == bool(message)
    assert kube.asked == ["gpus/partita-operator"]
