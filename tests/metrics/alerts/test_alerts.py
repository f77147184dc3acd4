"""When each alert fires, what it then says, and when it must not: asked of Prometheus itself."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from metrics.monitoring import alerts, dashboard, rules

RULES = alerts()


@dataclass(frozen=True)
class Case:
    """An alert, and what it is on and on not.

    Attributes
    ----------
    series
        Series, each with its values in a bad and in a good world, one a minute in promtool's
        notation, or none: the alert fires on the bad ones, and not on the good ones.
    minutes
        When it does not fire yet on the bad ones, and when it does.
    """

    alert: str
    series: Mapping[str, tuple[str, str]]
    minutes: tuple[int, int]
    says: str
    labels: Mapping[str, str] = field(default_factory=dict)


GPU = {"partition": "shared", "gpu": "shared-0"}
LABELS = 'partition="shared",gpu="shared-0"'
POLICY = {"partition": "shared", "policy": "dqn"}
CHARGE = 'partition="shared",policy="dqn"'

CASES = [
    Case(
        "PartitaNoLeader",
        {
            'partita_leader{pod="a"}': ("1 1 0x20", "1 0x20"),
            'partita_leader{pod="b"}': ("0x20", "0 1x20"),
        },
        minutes=(3, 5),
        says="No operator is the leader, so no job starts and no allocation is released.",
    ),
    Case(
        "PartitaUnreadableObjects",
        {
            'partita_unreadable_objects{resource="sharedgpujobs",field="spec.slice"}': (
                "2x60",
                "2x10 0x50",
            )
        },
        minutes=(10, 20),
        says="2 sharedgpujobs cannot be read: spec.slice is invalid.",
        labels={"resource": "sharedgpujobs", "field": "spec.slice"},
    ),
    Case(
        "PartitaNotRecording",
        {"partita_unrecorded_decisions_total": ("0+1x60", "7x60")},
        minutes=(10, 40),
        says="Decisions are missing from the recordings for `partita replay`.",
    ),
    Case(
        "PartitaGPUFaulted",
        {f'partita_gpu_state{{{LABELS},state="Faulted"}}': ("0 1x20", "0 1 0x20")},
        minutes=(2, 4),
        says="GPU shared-0 has faulted and does not recover by itself.",
        labels=GPU,
    ),
    Case(
        "PartitaGPUFaultsRepeatedly",
        {f'partita_gpu_state{{{LABELS},state="Faulted"}}': ("0x5 1 0x5 1 0x60", "0x5 1 0x60")},
        minutes=(8, 20),
        says="GPU shared-0 has faulted and recovered more than once in an hour.",
        labels=GPU,
    ),
    Case(
        "PartitaGPUUnready",
        {
            f'partita_gpu_state{{{LABELS},state="Unready"}}': ("1x60", ""),
            f'partita_gpu_state{{{LABELS},state="Draining"}}': ("", "1x60"),
        },
        minutes=(8, 12),
        says="GPU shared-0 is Unready and accepts no jobs.",
        labels={**GPU, "state": "Unready"},
    ),
    Case(
        "PartitaMPSUnhealthy",
        {
            f'partita_mps_state{{{LABELS},state="Stopped"}}': ("1x60", "1x60"),
            f'partita_gpu_state{{{LABELS},state="Ready"}}': ("1x60", ""),
            f'partita_gpu_state{{{LABELS},state="Draining"}}': ("", "1x60"),
        },
        minutes=(4, 7),
        says="MPS of GPU shared-0 is Stopped.",
        labels={**GPU, "state": "Stopped"},
    ),
    Case(
        "PartitaMPSWedgesRepeatedly",
        {
            f'partita_mps_restarts_total{{{LABELS},reason="Wedged"}}': (
                "0x10 1x10 2x60",
                "0x10 1x70",
            )
        },
        minutes=(15, 30),
        says="MPS of GPU shared-0 was wedged more than once in six hours.",
        labels=GPU,
    ),
    Case(
        "PartitaUnknownProcesses",
        {f"partita_gpu_unknown_processes{{{LABELS}}}": ("2x60", "0x60")},
        minutes=(4, 7),
        says="2 processes use GPU shared-0 without an allocation.",
        labels=GPU,
    ),
    Case(
        "PartitaWrongMemoryLimit",
        {f"partita_gpu_wrong_memory_limits{{{LABELS}}}": ("0x2 1 0x60", "0x60")},
        minutes=(2, 6),
        says="1 jobs on GPU shared-0 had a wrong memory limit.",
        labels=GPU,
    ),
    Case(
        "PartitaPartitionShortOfGPUs",
        {
            'partita_partition_wanted_gpus{partition="shared"}': ("2x60", "2x60"),
            'partita_gpu_state{partition="shared",gpu="shared-0",state="Ready"}': ("", "1x60"),
            'partita_gpu_state{partition="shared",gpu="shared-1",state="Ready"}': ("", "1x60"),
        },
        minutes=(20, 35),
        says="Partition shared has 2 fewer ready GPUs than it requests.",
        labels={"partition": "shared"},
    ),
    Case(
        "PartitaGPUMemoryNearlyFull",
        {
            f"partita_gpu_used_memory_bytes{{{LABELS}}}": ("96x60", "93x60"),
            f"partita_gpu_memory_bytes{{{LABELS}}}": ("100x60", "100x60"),
        },
        minutes=(4, 7),
        says="Memory of GPU shared-0 is 96% full.",
        labels=GPU,
    ),
    Case(
        "PartitaGPUAllocatedButIdle",
        {
            f"partita_gpu_utilization_ratio{{{LABELS}}}": ("0.01x200", "0x200"),
            f"partita_gpu_allocated_jobs{{{LABELS}}}": ("1x200", "0x200"),
        },
        minutes=(30, 130),
        says="GPU shared-0 is allocated but has been almost idle for two hours.",
        labels=GPU,
    ),
    Case(
        "PartitaJobsWaitLong",
        {'partita_queue_oldest_timestamp_seconds{partition="shared"}': ("0x400", "0+60x400")},
        minutes=(240, 270),
        says="A job or claim of partition shared has waited for 4h 30m 0s.",
        labels={"partition": "shared"},
    ),
    Case(
        "PartitaJobsCannotRun",
        {
            'partita_queue_jobs{partition="shared",reason="NeverFits"}': ("3x100", ""),
            'partita_queue_jobs{partition="shared",reason="InsufficientMemory"}': ("", "3x100"),
            "partita_jobs_without_partition": ("", "0x100"),
        },
        minutes=(50, 70),
        says="3 jobs or claims cannot run until their YAML changes: NeverFits.",
        labels={"partition": "shared", "reason": "NeverFits"},
    ),
    Case(
        "PartitaJobsCannotRun",
        {"partita_jobs_without_partition": ("1x100", "1x30 0x70")},
        minutes=(50, 70),
        says="1 jobs or claims cannot run until their YAML changes: PartitionNotFound.",
    ),
    Case(
        "PartitaOutOfMemoryOften",
        {
            'partita_attempts_total{partition="shared",outcome="OutOfMemory"}': (
                "0+1x400",
                "0+1x400",
            ),
            'partita_attempts_total{partition="shared",outcome="Succeeded"}': (
                "0+3x400",
                "0+9x400",
            ),
        },
        minutes=(4, 380),
        says="25% of the attempts in partition shared ran out of GPU memory.",
        labels={"partition": "shared"},
    ),
    Case(
        "PartitaPodsStartSlowly",
        {
            'partita_attempt_pod_start_seconds_bucket{partition="shared",le="60.0"}': (
                "0x200",
                "0+1x200",
            ),
            'partita_attempt_pod_start_seconds_bucket{partition="shared",le="300.0"}': (
                "0+1x200",
                "0+1x200",
            ),
            'partita_attempt_pod_start_seconds_bucket{partition="shared",le="+Inf"}': (
                "0+1x200",
                "0+1x200",
            ),
        },
        minutes=(20, 100),
        says="GPU memory of partition shared is allocated but unused while Pods start: 4m 36s (p90).",
        labels={"partition": "shared"},
    ),
    Case(
        "PartitaClaimsTakenBack",
        {'partita_claim_steps_total{partition="shared",step="TakenBack"}': ("0+1x100", "0 3x100")},
        minutes=(15, 40),
        says="Claims of partition shared are allocated and taken back again, because their Pods do "
        "not start.",
        labels={"partition": "shared"},
    ),
    Case(
        "PartitaClaimsNotStarting",
        {
            'partita_claims{partition="shared",phase="Assigned"}': ("3x60", "3x60"),
            'partita_claim_steps_total{partition="shared",step="Started"}': ("5x60", "0+1x60"),
        },
        minutes=(4, 20),
        says="3 claims of partition shared are allocated, and no container of their Pods starts.",
        labels={"partition": "shared"},
    ),
    Case(
        "PartitaPolicyUnhealthy",
        {f"partita_policy_healthy{{{CHARGE}}}": ("0x60", "0x10 1x50")},
        minutes=(10, 20),
        says="Policy dqn of partition shared failed; the fallback decides.",
        labels=POLICY,
    ),
    Case(
        "PartitaPolicyFallsBack",
        {
            f"partita_policy_fallbacks_total{{{CHARGE}}}": ("0+1x60", "0x60"),
            f"partita_policy_decisions_total{{{CHARGE}}}": ("0+4x60", "0x60"),
        },
        minutes=(10, 40),
        says="The fallback made 25% of the decisions of dqn.",
        labels=POLICY,
    ),
    Case(
        "PartitaGuardRejects",
        {f"partita_guard_rejections_total{{{CHARGE}}}": ("0+1x60", "5x60")},
        minutes=(10, 40),
        says="The guard keeps rejecting placements of policy dqn.",
        labels=POLICY,
    ),
    Case(
        "PartitaDecisionsSlow",
        {
            f'partita_policy_decision_seconds_bucket{{{CHARGE},le="1.0"}}': ("0x60", "0+1x60"),
            f'partita_policy_decision_seconds_bucket{{{CHARGE},le="2.0"}}': ("0+1x60", "0+1x60"),
            f'partita_policy_decision_seconds_bucket{{{CHARGE},le="+Inf"}}': ("0+1x60", "0+1x60"),
        },
        minutes=(10, 40),
        says="Policy dqn takes 1.99s (p99) for a decision; the limit is 2 s.",
        labels=POLICY,
    ),
]


def promtool_test(case: Case) -> list[dict[str, Any]]:
    """The case in promtool's own words: one world in which it fires, and one in which not."""
    rule = RULES[case.alert]
    fired = {
        "exp_labels": {**rule["labels"], **case.labels},
        "exp_annotations": {**rule["annotations"], "summary": case.says},
    }

    def world(place: int, *moments: tuple[int, list[Any]]) -> dict[str, Any]:
        values = {name: worlds[place] for name, worlds in case.series.items() if worlds[place]}
        return {
            "interval": "1m",
            "input_series": [{"series": s, "values": v} for s, v in values.items()],
            "alert_rule_test": [
                {"eval_time": f"{at}m", "alertname": case.alert, "exp_alerts": expected}
                for at, expected in moments
            ],
        }

    early, late = case.minutes
    return [world(0, (early, []), (late, [fired])), world(1, (late, []))]


@pytest.fixture
def rule_file(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump(rules()))
    return path


def accepts(promtool: Path, *arguments: str | Path) -> str:
    """Check that promtool finds no fault; return what it says."""
    answer = subprocess.run([promtool, *arguments], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout


def test_prometheus_takes_the_rules(promtool: Path, rule_file: Path):
    accepts(promtool, "check", "rules", "--lint=all", "--lint-fatal", rule_file)


def test_each_alert_has_a_case():
    assert {case.alert for case in CASES} == RULES.keys()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_an_alert_fires_when_it_should_and_only_then(promtool: Path, rule_file: Path, case: Case):
    path = rule_file.with_name("tests.yaml")
    path.write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "tests": promtool_test(case)}))
    accepts(promtool, "test", "rules", path)


def test_prometheus_takes_what_the_dashboard_asks(promtool: Path, tmp_path: Path):
    queries = [
        target["expr"].replace("$__rate_interval", "5m").replace("$partition", ".*")
        for panel in dashboard()["panels"]
        for target in panel.get("targets", ())
    ]
    path = tmp_path / "dashboard.yaml"
    recorded = [{"record": f"dashboard:query{i}", "expr": q} for i, q in enumerate(queries)]
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": recorded}]}))
    assert f"{len(queries)} rules found" in accepts(promtool, "check", "rules", path)
