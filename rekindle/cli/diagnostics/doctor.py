"""`rekindle doctor`: check this machine, the service and the subscription."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from rekindle.cli.command import Cli
from rekindle.cli.connection import STACK_FILE
from rekindle.cli.errors import ExitCode

if TYPE_CHECKING:
    from rekindle.cli.diagnostics.check import CheckResult

_STYLES = {"ok": "green", "missing": "bold red", "doubt": "yellow", "skipped": "dim"}
_TOPICS = {"machine": "This machine", "service": "The service", "azure": "Azure"}


def check_installation(
    cli: Cli,
    port: Annotated[
        int, typer.Option("--port", help="First of the local stack's four ports.")
    ] = 8080,
) -> int:
    """Check the installation and show how to fix problems; exit code 1 if something is missing."""
    results = {topic: list(checks) for topic, checks in _run_checks(cli, port)}
    failed = [c for checks in results.values() for c in checks if c.verdict == "missing"]
    document = {
        "object": "doctor",
        "ok": not failed,
        "checks": [c.as_dict() | {"topic": t} for t, checks in results.items() for c in checks],
    }
    cli.print_result(document, lambda: _report_lines(results, len(failed)))
    return ExitCode.FAILED if failed else ExitCode.OK


def _run_checks(cli: Cli, port: int) -> "Iterator[tuple[str, Iterable[CheckResult]]]":
    from rekindle.cli.diagnostics import check_azure, check_machine, check_service
    from rekindle.cli.diagnostics.check import skipped_check

    state = cli.options.state or Path(".rekindle")
    if is_remote_service(cli):
        why = "a remote service is configured, so no local stack is needed"
        yield "machine", [skipped_check("local stack", why)]
    else:
        runs = (state / STACK_FILE).is_file()
        yield "machine", check_machine.machine_checks(state.resolve(), port, stack_runs=runs)
    yield "service", check_service.service_checks(cli.options)
    yield "azure", check_azure.azure_checks(os.environ)


def is_remote_service(cli: Cli) -> bool:
    """Return whether a service is configured that does not run on this machine."""
    url = cli.options.url or os.environ.get("REKINDLE_URL") or os.environ.get("OPENAI_BASE_URL")
    return bool(url) and not _is_this_machine(str(url))


def _is_this_machine(url: str) -> bool:
    import httpx

    from rekindle.cli.api_client import is_loopback

    try:
        return is_loopback(url)
    except httpx.InvalidURL:
        return False


def _report_lines(results: "dict[str, list[CheckResult]]", failed: int) -> Iterator[Any]:
    for topic, checks in results.items():
        yield Text(_TOPICS[topic], style="bold")
        table = Table.grid(padding=(0, 2))
        for check in checks:
            remedy = f"\n{check.remedy}" if check.remedy else ""
            row = Text(str(check.verdict), style=_STYLES[check.verdict])
            table.add_row("", row, check.name, Text(check.found + remedy))
        yield table
    yield "Nothing is missing." if not failed else f"{failed} missing; see the remedies above."
