"""`partita submit`: creates a SharedGPUJob from a command, or from a Pod or Job."""

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from partita.cli import terminal
from partita.cli.completions import complete_names
from partita.cli.jobs.when import show_starts
from partita.cli.options import (
    MEMORY,
    Cluster,
    JobName,
    cluster_options,
    namespace_option,
    output_option,
)

if TYPE_CHECKING:
    from partita.kube.client import Kube
    from partita.validation.yaml_documents import Document

__all__ = ["command"]


@click.command("submit", short_help="Create a job from a command, a Pod or a Job.")
@click.argument("name", required=False)
@click.argument("program", nargs=-1, metavar="[-- COMMAND [ARG]...]")
@click.option(
    "--filename",
    "-f",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    metavar="FILE",
    help="YAML of a Pod or a batch/v1 Job. - reads stdin.",
)
@click.option("--image", help="Container image in which the command runs.")
@click.option(
    "--env",
    "-e",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set an environment variable. May be repeated.",
)
@click.option(
    "--partition",
    metavar="NAME",
    shell_complete=complete_names("PARTITIONS"),
    help="Partition whose GPUs the job uses. By default the only one in the cluster.",
)
@click.option("--gpu-memory", type=MEMORY, help="GPU memory of the job, such as 6Gi.")
@click.option(
    "--gpu-memory-limit",
    type=MEMORY,
    help="Most GPU memory that the job may use while other jobs do not need it, such as 12Gi.",
)
@click.option(
    "--thread-percent", type=click.IntRange(1, 100), help="Limit on the share of a GPU's threads."
)
@click.option(
    "--gpus",
    type=click.IntRange(1, 64),
    help="Number of GPUs. More than one needs a partition with mode Exclusive.",
)
@click.option(
    "--application",
    metavar="NAME",
    help="Application name. Jobs of one application share their measured history.",
)
@click.option("--framework", metavar="NAME", help="TensorFlow, PyTorch, JAX or CuPy.")
@click.option("--priority", type=int, help="Jobs with higher priority start first.")
@click.option(
    "--expected-duration", metavar="DURATION", help="Expected run time on an idle GPU, such as 90m."
)
@namespace_option
@click.option("--dry-run", is_flag=True, help="Print the YAML and submit nothing.")
@click.option(
    "--when",
    is_flag=True,
    help="Print when it would start, as `partita when` does, and submit nothing.",
)
@cluster_options
@output_option("partita.models:SharedGPUJob", usual="text")
def command(
    *,
    name: str | None,
    program: tuple[str, ...],
    filename: Path | None,
    image: str | None,
    env: tuple[str, ...],
    namespace: str | None,
    dry_run: bool,
    when: bool,
    cluster: Cluster,
    output: str,
    **wishes: Any,
) -> None:
    """Submit a job that shares a GPU. NAME is its name or NAMESPACE/NAME.

    The job runs COMMAND in an image. With --filename it runs what an existing Pod or Job runs:
    `nvidia.com/gpu` is removed, and the amounts that HAMi, Volcano, KAI or Partita's own limits,
    claims and annotations ask for become its GPU memory and share of threads. What cannot be
    carried over is named.

    Omit --gpu-memory and the first run gets a whole GPU, so that its usage can be measured.

    \b
    Examples:
      partita submit train-7 --image trainer:1 --gpu-memory 6Gi -- python train.py --epochs 3
      kubectl get pod old -o yaml | partita submit train-7 -f - --gpu-memory 6Gi
      partita submit -f job.yaml --partition shared --dry-run > job-shared.yaml
    """  # noqa: D301
    from partita.cli.run_until_stopped import run_until_stopped

    if when and (dry_run or output != "text"):
        raise click.UsageError(
            "--when prints text: for data, pipe `partita submit --dry-run` to `partita when -`"
        )
    job = None if name is None else JobName.read(name, namespace)
    metadata, spec = (
        _from_file(filename, image, program, env)
        if filename is not None
        else _from_command(job, image, program, env)
    )
    if job is not None:
        metadata["name"] = job.name
    if where := job.namespace if job is not None else namespace:
        metadata["namespace"] = where
    body = run_until_stopped(_job(metadata, spec, wishes, cluster))
    if when:
        show_starts("job", json.dumps(body).encode(), namespace, cluster)
        return
    if not dry_run:
        body = run_until_stopped(_submit(body, cluster))
    if dry_run or output != "text":
        terminal.dump_object(body, "yaml" if output == "text" else output)


def _from_command(
    job: JobName | None, image: str | None, program: tuple[str, ...], env: tuple[str, ...]
) -> tuple[dict[str, Any], dict[str, Any]]:
    from partita.cli.jobs.submission import of_command

    if job is None or image is None:
        raise click.UsageError("write a NAME and --image, or --filename with a Pod or Job")
    variables = {}
    for pair in env:
        key, sign, value = pair.partition("=")
        if not key or not sign:
            raise click.UsageError(f"--env {pair}: write NAME=VALUE")
        variables[key] = value
    return of_command(job.name, image, program, variables)


def _from_file(
    filename: Path, image: str | None, program: tuple[str, ...], env: tuple[str, ...]
) -> tuple[dict[str, Any], dict[str, Any]]:
    from partita.cli.jobs.submission import UnsuitableError, of_manifest

    if image or program or env:
        raise click.UsageError(
            "with --filename, image, command and variables come from the file: remove them here"
        )
    body = _read(filename).value
    if not isinstance(body, dict):
        raise terminal.UserError(f"{filename} is no object: write a Pod or a Job")
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
        raise terminal.UserError(f"{filename} has {len(found)} objects: write one Pod or Job")
    return found[0]


async def _job(
    metadata: dict[str, Any], spec: dict[str, Any], wishes: dict[str, Any], cluster: Cluster
) -> dict[str, Any]:
    """Build the job, and validate it as the API server does."""
    from pydantic.alias_generators import to_camel

    from partita.cli.jobs.submission import shared_job
    from partita.models.quantities import format_memory
    from partita.validation.files import check_files

    asked = {to_camel(key): value for key, value in wishes.items()}
    for name in ("gpuMemory", "gpuMemoryLimit"):
        if asked[name] is not None:
            asked[name] = format_memory(asked[name])
    if asked["partition"] is None and "partition" not in spec:
        asked["partition"] = await _only_partition(cluster)
    body = shared_job(metadata, spec, asked)
    report = check_files([("job", json.dumps(body).encode())])
    for finding in (*report.errors, *report.warnings):
        said = f"{finding.path}: {finding.message}" if finding.path else finding.message
        if not finding.warning:
            raise terminal.UserError(said)
        terminal.say(f"Note: {said}")
    return body


async def _submit(body: dict[str, Any], cluster: Cluster) -> dict[str, Any]:
    from partita.cli.connection import open_cluster
    from partita.cli.jobs.find_job import key_of
    from partita.kube.client import JOBS
    from partita.kube.connect import current_namespace
    from partita.kube.errors import AlreadyExistsError
    from partita.kube.operator_lease import check_operator

    async with open_cluster(*cluster) as kube:
        meta = body["metadata"]
        meta.setdefault("namespace", current_namespace(*cluster))
        key = key_of(body)
        created = None
        if await _existing(kube, meta) is None:
            try:
                created = await kube.create(JOBS, body)
            except AlreadyExistsError:
                # The client has sent it again, because the first answer was lost.
                there = await _existing(kube, meta)
                created = there if there and _contains(there["spec"], body["spec"]) else None
        if created is None:
            raise terminal.UserError(
                f"SharedGPUJob {key} already exists: choose another name, or delete it with "
                f"`kubectl delete sharedgpujob -n {meta['namespace']} {meta['name']}`"
            )
        terminal.say(f"{key} is submitted; `partita explain {key}` shows its state")
        if problem := await check_operator(kube):
            terminal.warn(problem)
        return created


async def _existing(kube: "Kube", meta: dict[str, Any]) -> dict[str, Any] | None:
    """Return the job of this name; None if there is none, or if the user may only create jobs."""
    from partita.kube.client import JOBS
    from partita.kube.errors import ForbiddenError, NotFoundError

    with suppress(ForbiddenError, NotFoundError):
        return await kube.get(JOBS, meta["name"], meta["namespace"])
    return None


def _contains(there: Any, sent: Any) -> bool:
    """Return whether a spec is the one that was sent, with the defaults of the API server."""
    if isinstance(there, dict) and isinstance(sent, dict):
        return all(_contains(there.get(key), value) for key, value in sent.items())
    return bool(there == sent)


async def _only_partition(cluster: Cluster) -> str:
    from partita.cli.connection import open_cluster
    from partita.kube.client import PARTITIONS
    from partita.kube.errors import ForbiddenError

    async with open_cluster(*cluster) as kube:
        try:
            partitions, _ = await kube.list(PARTITIONS)
        except ForbiddenError as error:
            raise terminal.UserError(
                f"name a partition with --partition: {error.message}"
            ) from error
    names = sorted(p["metadata"]["name"] for p in partitions)
    if len(names) != 1:
        there = ", ".join(names) or "none"
        raise terminal.UserError(f"name a partition with --partition (there are: {there})")
    return str(names[0])
