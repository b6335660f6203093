"""`rekindle tier`: storage tiers of a job's checkpoints and model, and what a move costs."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from rekindle.cli import formats
from rekindle.cli.command import Cli
from rekindle.cli.errors import CliError, ExitCode
from rekindle.cli.formats import money, object_member
from rekindle.cli.job_lookup import JOBS, JobArgument, resolve_job_id
from rekindle.cli.jobs import views

Json = dict[str, Any]


class StorageTier(StrEnum):
    """Azure storage tiers, from expensive to keep to expensive to read."""

    HOT = "hot"
    COOL = "cool"
    COLD = "cold"
    ARCHIVE = "archive"


class RehydratePriority(StrEnum):
    """How fast data comes back from the archive tier."""

    STANDARD = "standard"
    HIGH = "high"


def change_tier(
    cli: Cli,
    job: JobArgument,
    to: Annotated[
        StorageTier | None,
        typer.Argument(
            metavar="[TIER]",
            help="Target tier: hot, cool, cold or archive. Omit to show the current tiers.",
        ),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="Checkpoint (id or step) to move instead of the final model."
        ),
    ] = None,
    priority: Annotated[
        RehydratePriority, typer.Option(help="Priority of rehydration from the archive tier.")
    ] = RehydratePriority.STANDARD,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Dry run: show the cost only.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")] = False,
) -> None:
    """Move the final model or a checkpoint to another storage tier, after showing the cost."""
    name = resolve_job_id(cli.client, job)
    lying = cli.client.get(f"{JOBS}/{name}/storage")
    if to is None:
        cli.print_result(lying, lambda: _lying(lying))
        return
    path = f"{JOBS}/{name}/{_which(lying, checkpoint)}/tier"
    wish = {"tier": str(to), "priority": str(priority)}
    quote = cli.client.post(path, wish | {"dry_run": True})
    if dry_run:
        cli.print_result(quote, lambda: _quoted(quote))
        return
    if not yes:
        _ask(cli, quote)
    moved = cli.client.post(path, wish)
    cli.print_result(moved, lambda: [*(_quoted(quote) if yes else ()), _said(name, moved)])


def _which(lying: Json, checkpoint: str | None) -> str:
    """Return the last part of the API path; a checkpoint may be given by its step."""
    if checkpoint is None:
        return "model"
    for folder in lying["folders"]:
        if folder["checkpoint"] and checkpoint in (
            folder["checkpoint"],
            str(folder["step_number"]),
        ):
            return f"checkpoints/{folder['checkpoint']}"
    raise CliError(
        f"The job has no checkpoint {checkpoint!r}.",
        f"List its checkpoints: rekindle tier {lying['job']}",
        exit_code=ExitCode.NOT_FOUND,
        code="checkpoint_not_found",
    )


def _ask(cli: Cli, quote: Json) -> None:
    """Show the cost and ask for confirmation; raise CliError without a terminal or consent."""
    if cli.as_json or not cli.out.is_terminal:
        once = money(object_member(quote, "cost").get("once"))
        raise CliError(
            f"Moving costs {once}; not an interactive terminal.",
            "Pass --yes to confirm, or --dry-run to show all costs.",
            exit_code=ExitCode.USAGE,
            code="not_confirmed",
        )
    cli.print_result(quote, lambda: _quoted(quote))
    if not typer.confirm("Move to this tier?", default=False):
        raise CliError("Nothing was moved.", code="not_confirmed")


def _lying(shown: Json) -> Iterable[Any]:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in ("what", "id", "size", "tier", "state"):
        table.add_column(column, no_wrap=column != "state", overflow="fold")
    for folder in shown["folders"]:
        table.add_row(
            _what(folder),
            folder["checkpoint"] or "-",
            formats.size(folder["bytes"]),
            folder["tier"],
            Text(_state(folder)),
        )
    yield table if shown["folders"] else "Nothing is committed yet."
    unit = shown.get("currency", "USD")
    monthly = f", {money(shown['a_month'], unit)} a month" if "a_month" in shown else ""
    spent = money(shown["spent"], unit)
    blobs = formats.count(shown["blobs"], "blob")
    yield f"{formats.size(shown['bytes'])} in {blobs}; storage cost so far: {spent}{monthly}."


def _what(folder: Mapping[str, Any]) -> str:
    return "model" if folder["kind"] == "model" else f"checkpoint of step {folder['step_number']}"


def _state(folder: Json) -> str:
    if folder["state"] == "archived":
        ways = object_member(folder, "rehydrate")
        standard, high = object_member(ways, "standard"), object_member(ways, "high")
        return (
            f"archived; rehydrates in {formats.duration(standard.get('seconds_at_most'))} for "
            f"{money(standard.get('cost'))}, in {formats.duration(high.get('seconds_at_most'))} "
            f"for {money(high.get('cost'))}"
        )
    if folder["state"] == "rehydrating":
        back = object_member(folder, "rehydrating")
        when = formats.local_time(back.get("expected_at"), day=True)
        return f"rehydrating ({back.get('priority')} priority), at the latest {when}"
    going = folder.get("moving_to")
    return f"moving to {going}" if going else str(folder["state"])


def _quoted(quote: Json) -> Iterable[Any]:
    bill, unit = object_member(quote, "cost"), object_member(quote, "cost").get("currency", "USD")
    moves, prices = object_member(quote, "moves"), object_member(quote, "prices")
    blobs = formats.count(moves.get("blobs", 0), "blob")
    pairs = [
        ("move", f"{_what(quote)}: {blobs}, {formats.size(moves.get('bytes'))}, to {quote['to']}"),
        ("once", money(bill.get("once"), unit)),
        ("early deletion (included)", money(bill.get("early_deletion"), unit)),
        (
            "per month",
            f"{_money(bill, 'a_month_after')} instead of {_money(bill, 'a_month_before')}",
        ),
        ("to read all of it", money(bill.get("read_back"), unit)),
    ]
    if bill.get("free_to_leave_at"):
        until = formats.local_time(bill["free_to_leave_at"], day=True)
        pairs.append(("free to leave", f"from {until} on"))
    pairs.append(("prices", f"{prices.get('source')}, of {prices.get('as_of')}"))
    yield views.facts_table(pairs)


def _money(bill: Mapping[str, Any], name: str) -> str:
    return money(bill.get(name), bill.get("currency", "USD"))


def _said(job: str, moved: Json) -> str:
    if moved["id"] is None:
        return f"The {_what(moved)} is already in {moved['to']}."
    when = moved.get("expected_at")
    soon = f", at the latest {formats.local_time(when, day=True)}" if when else ""
    return f"The {_what(moved)} moves to {moved['to']}{soon}. Next: rekindle tier {job}"
