"""`rekindle break`: inject a fault into the local stack and watch jobs recover."""

from typing import TYPE_CHECKING, Annotated

import typer

from rekindle.cli.command import Cli
from rekindle.cli.errors import CliError, ExitCode
from rekindle.cli.job_lookup import LAST
from rekindle.cli.jobs.views import facts_table as two_columns
from rekindle.cli.local import stack_commands

if TYPE_CHECKING:
    from rekindle.cli.local.breakages import Breakage

_SECONDS = 20.0


def complete_fault(incomplete: str) -> list[tuple[str, str]]:
    """Return completions of fault names."""
    from rekindle.cli.local.breakages import BREAKAGES

    return [(name, b.effect) for name, b in BREAKAGES.items() if name.startswith(incomplete)]


def inject_fault(
    cli: Cli,
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="[WHAT]",
            help="Fault to inject. Omit to list the available faults.",
            autocompletion=complete_fault,
        ),
    ] = None,
    job: Annotated[
        str,
        typer.Option(
            "--job", metavar="JOB", help="Job whose machine to break, for faults of machines."
        ),
    ] = LAST,
    machine: Annotated[
        int | None,
        typer.Option(
            "--machine", metavar="N", min=1, help="Machine number, from 1; default: the last."
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.1, max=3600, help="Duration of temporary faults in seconds.")
    ] = _SECONDS,
) -> None:
    """Inject a fault into the local stack and watch it recover. Local stack only."""
    from rekindle.cli.local.breakages import inject_breakage

    if what is None:
        _print_faults(cli)
        return
    breakage = _find_breakage(what)
    stack = stack_commands.require_stack(cli)
    victim = None
    if breakage.needs_machine:
        victim = stack_commands.select_machine(
            stack_commands.running_machines(cli, stack, job), machine
        )
    cli.print_note(breakage.effect.replace("--seconds", f"{seconds:g} s"))
    stack_commands.run_async(inject_breakage(breakage, stack, victim, seconds))
    name = victim.name if victim else None
    document = {"object": "breakage", "what": what, "machine": name, "seconds": seconds}
    lines = [f"done: {what}, machine {name}", f"Next: rekindle watch {job}"]
    cli.print_result(document, lambda: lines if name else [f"done: {what}"])


def _print_faults(cli: Cli) -> None:
    """Show every fault and what happens then."""
    from rekindle.cli.local.breakages import BREAKAGES

    document = [{"what": name, "then": b.effect} for name, b in BREAKAGES.items()]
    view = [two_columns([(name, b.effect) for name, b in BREAKAGES.items()])]
    cli.print_result(
        {"object": "list", "data": document}, lambda: [*view, "Next: rekindle break WHAT"]
    )


def _find_breakage(name: str) -> "Breakage":
    """Return the fault of this name."""
    from rekindle.cli.local.breakages import BREAKAGES

    if (breakage := BREAKAGES.get(name)) is None:
        raise CliError(
            f"Fault {name!r} does not exist.",
            f"Choose one of: {', '.join(BREAKAGES)}.",
            exit_code=ExitCode.USAGE,
            code="unknown_breakage",
        )
    return breakage
