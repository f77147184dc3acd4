"""`partita submit`: a SharedGPUJob from a command line, or from a Pod or Job that exists."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from partita.cli import terminal
from partita.cli.jobs.find_job import complete_partitions, namespace_option
from partita.cli.options import kubeconfig_option

if TYPE_CHECKING:
    from partita.validation.yaml_documents import Document

__all__ = ["command"]


@click.command("submit", short_help="Make a SharedGPUJob of a command, a Pod or a Job.")
@click.argument("name", required=False)
@click.argument("program", nargs=-1, metavar="[-- COMMAND [ARG]...]")
@click.option(
    "--filename",
    "-f",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    metavar="FILE",
    help="YAML of a Pod or a batch/v1 Job; - is stdin.",
)
@click.option("--image", help="The image that the command runs in.")
@click.option(
    "--env", "-e", multiple=True, metavar="NAME=VALUE", help="Set a variable; may be repeated."
)
@click.option(
    "--partition",
    metavar="NAME",
    shell_complete=complete_partitions,
    help="Whose GPUs it runs on; by default the only one there is.",
)
@click.option("--gpu-memory", metavar="QUANTITY", help="GPU memory it needs, such as 6Gi.")
@click.option("--thread-percent", type=click.IntRange(1, 100), help="Most of a GPU's threads.")
@click.option("--gpus", type=click.IntRange(1, 64), help="GPUs; several need mode Exclusive.")
@click.option("--application", metavar="NAME", help="Name under which its history is kept.")
@click.option("--framework", metavar="NAME", help="TensorFlow, PyTorch, JAX or CuPy.")
@click.option("--priority", type=int, help="Higher goes first.")
@click.option("--expected-duration", metavar="DURATION", help="On an idle GPU, such as 90m.")
@namespace_option("The job's namespace")
@click.option("--dry-run", is_flag=True, help="Print the YAML, for Git, and submit nothing.")
@kubeconfig_option
def command(
    *,
    name: str | None,
    program: tuple[str, ...],
    filename: Path | None,
    image: str | None,
    env: tuple[str, ...],
    namespace: str | None,
    dry_run: bool,
    kubeconfig: str | None,
    **wishes: Any,
) -> None:
    """Submit a job NAME that shares a GPU.

    It runs COMMAND in an image, or does what a Pod or a Job does that asks for a whole GPU today:
    with --filename, `nvidia.com/gpu` is taken out, and HAMi's `nvidia.com/gpumem` and
    `nvidia.com/gpucores` become its memory and threads. Without any memory it runs alone once,
    to be learnt.

    \b
    Examples:
      partita submit train-7 --image trainer:1 --gpu-memory 6Gi -- python train.py --epochs 3
      kubectl get pod old -o yaml | partita submit train-7 -f - --gpu-memory 6Gi
      partita submit -f job.yaml --partition shared --dry-run > job-shared.yaml
    """  # noqa: D301
    import yaml

    from partita.cli.run_until_stopped import Stopped, run_until_stopped

    terminal.quiet_logs()
    metadata, spec = (
        _from_file(filename, image, program, env)
        if filename is not None
        else _from_command(name, image, program, env)
    )
    if name is not None:
        metadata["name"] = name
    if namespace is not None:
        metadata["namespace"] = namespace
    try:
        body = run_until_stopped(_job(metadata, spec, wishes, kubeconfig))
        if dry_run:
            terminal.data(yaml.safe_dump(body, sort_keys=False).rstrip())
            return
        key = run_until_stopped(_submit(body, kubeconfig))
    except Stopped:
        return
    terminal.say(f"{key} is submitted; `partita explain {key}` says how it stands")


def _from_command(
    name: str | None, image: str | None, program: tuple[str, ...], env: tuple[str, ...]
) -> tuple[dict[str, Any], dict[str, Any]]:
    from partita.cli.jobs.submission import of_command

    if name is None or image is None:
        raise click.UsageError("give a name and --image, or a Pod or Job with --filename")
    variables = {}
    for pair in env:
        key, sign, value = pair.partition("=")
        if not key or not sign:
            raise click.UsageError(f"--env {pair}: write NAME=VALUE")
        variables[key] = value
    return of_command(name, image, program, variables)


def _from_file(
    filename: Path, image: str | None, program: tuple[str, ...], env: tuple[str, ...]
) -> tuple[dict[str, Any], dict[str, Any]]:
    from partita.cli.jobs.submission import UnsuitableError, of_manifest

    if image or program or env:
        raise click.UsageError("with --filename, image, command and --env stand in the file")
    body = _read(filename).value
    if not isinstance(body, dict):
        raise terminal.UserError(f"{filename} holds no object: give a Pod or a Job")
    try:
        metadata, spec, notes = of_manifest(body)
    except UnsuitableError as error:
        raise terminal.UserError(f"{filename}: {error}") from error
    for note in notes:
        terminal.say(f"Note: {note}")
    return metadata, spec


def _read(filename: Path) -> "Document":
    from partita.validation.yaml_documents import Problem, read_documents

    with click.open_file(str(filename), "rb") as file:
        documents = list(read_documents(file.read()))
    for document in documents:
        problems = [document] if isinstance(document, Problem) else document.problems
        if problems:
            raise terminal.UserError(f"{filename}:{problems[0].line}: {problems[0].message}")
    found = [d for d in documents if not isinstance(d, Problem) and d.value is not None]
    if len(found) != 1:
        raise terminal.UserError(f"{filename} holds {len(found)} objects: give one Pod or Job")
    return found[0]


async def _job(
    metadata: dict[str, Any], spec: dict[str, Any], wishes: dict[str, Any], kubeconfig: str | None
) -> dict[str, Any]:
    """Put the job together, and say what the API server would refuse before it is asked."""
    import yaml

    from partita.cli.jobs.submission import shared_job
    from partita.validation.files import check_files

    asked = {_camel(key): value for key, value in wishes.items()}
    if asked["partition"] is None:
        asked["partition"] = await _only_partition(kubeconfig)
    body = shared_job(metadata, spec, asked)
    errors = check_files([("job", yaml.safe_dump(body).encode())]).errors
    if errors:
        where = f"{errors[0].path}: " if errors[0].path else ""
        raise terminal.UserError(f"{where}{errors[0].message}")
    return body


async def _submit(body: dict[str, Any], kubeconfig: str | None) -> str:
    from partita.cli.connection import open_cluster
    from partita.cli.jobs.find_job import current_namespace
    from partita.kube.client import JOBS
    from partita.kube.errors import AlreadyExistsError

    async with open_cluster(kubeconfig) as kube:
        meta = body["metadata"]
        meta.setdefault("namespace", current_namespace(kubeconfig))
        key = f"{meta['namespace']}/{meta['name']}"
        try:
            await kube.create(JOBS, body)
        except AlreadyExistsError:
            raise terminal.UserError(
                f"there is a SharedGPUJob {key} already: choose another name, or delete it"
            ) from None
    return key


async def _only_partition(kubeconfig: str | None) -> str:
    from partita.cli.connection import open_cluster
    from partita.kube.client import PARTITIONS

    async with open_cluster(kubeconfig) as kube:
        partitions, _ = await kube.list(PARTITIONS)
    names = sorted(p["metadata"]["name"] for p in partitions)
    if len(names) != 1:
        there = ", ".join(names) or "none"
        raise terminal.UserError(f"name one with --partition (there are: {there})")
    return str(names[0])


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
