"""What the commands say of themselves, to the letter."""

import sys

import pytest

from partita.cli import COMMANDS, main
from support.imports import imported

HEAVY = {"aiohttp", "kopf", "kubernetes.aio.client", "pydantic", "rich", "structlog", "yaml"}
LEARNED = {"numpy", "torch", "matplotlib"}
"""What takes long, and only a learned policy or a picture needs."""


def test_the_first_page_lists_the_commands_in_the_order_one_meets_them(invoke, text_golden) -> None:
    result = invoke("--help")
    text_golden("help/partita.txt", result.output)


@pytest.mark.parametrize("name", list(COMMANDS))
def test_each_command_teaches_with_an_example(invoke, text_golden, name: str) -> None:
    result = invoke(name, "--help")
    assert f"partita {name}" in result.output.partition("Options:")[0].partition("\n")[2]
    text_golden(f"help/{name}.txt", result.output)


def test_help_imports_nothing_heavy() -> None:
    code = (
        "from partita.cli import COMMANDS, main; main(['--help'], standalone_mode=False); "
        "[main([name, '--help'], standalone_mode=False) for name in COMMANDS]"
    )
    assert not (HEAVY | LEARNED) & imported(code)


def test_an_operator_that_has_not_decided_yet_imports_nothing_of_learned_policies() -> None:
    code = (
        "import asyncio, partita.process.main; "
        "from partita.models.partition import PolicySpec; "
        "from partita.scheduling.policy_runner import PolicyRunner; "
        "asyncio.run(PolicyRunner(PolicySpec(name='sjf', shadow=('fifo',))).build())"
    )
    assert not LEARNED & imported(code)


def test_a_command_about_jobs_imports_the_models_of_jobs_alone() -> None:
    found = imported("import partita.cli.connection; from partita.models import SharedGPUJob")
    assert "partita.models.job" in found
    assert not {"partita.models.gpu_server", "partita.models.partition"} & found


def test_as_a_plug_in_of_kubectl_it_knows_its_name(monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/kubectl-partita", "--help"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("Usage: kubectl partita [OPTIONS]")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["nope"], "No such command 'nope'"),
        (["validate"], "Missing argument 'FILES...'"),
        (["nodes", "--gpu-memory", "lots"], "write an amount such as 4Gi"),
        (["top", "--kubeconfig", "/nowhere"], "there is no file /nowhere"),
        (["crds", "--install", "--directory", "x"], "write one of them"),
        (["demo", "--policy", "magic"], "there is no policy 'magic'"),
    ],
)
def test_wrong_usage_says_what_to_write_and_exits_with_2(invoke, args, said) -> None:
    result = invoke(*args, code=2)
    assert said in result.stderr
    assert not result.stdout
