"""`rekindle tier`: where a job's checkpoints and model lie, and what it costs to move one."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from rekindle.cli import formats
from rekindle.cli.command import Cli
from rekindle.cli.errors import ExitCode, Trouble
from rekindle.cli.formats import money, part
from rekindle.cli.job_lookup import JOBS, JobArgument, job_id
from rekindle.cli.jobs import views

Json = dict[str, Any]


class Tier(StrEnum):
    """Dearest to keep and cheapest to read first."""

    HOT = "hot"
    COOL = "cool"
    COLD = "cold"
    ARCHIVE = "archive"


class Priority(StrEnum):
    """Of bringing something back from the archive."""

    STANDARD = "standard"
    HIGH = "high"


def tier(
    cli: Cli,
    job: JobArgument,
    to: Annotated[
        Tier | None, typer.Argument(metavar="[TIER]", help="hot, cool, cold, archive; none: look.")
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(metavar="ID", help="This checkpoint (id or step) and not the final model."),
    ] = None,
    priority: Annotated[
        Priority, typer.Option(help="How soon it comes back from the archive.")
    ] = Priority.STANDARD,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it costs, and move nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Move without asking.")] = False,
) -> None:
    """Move the final model or a checkpoint to another tier of storage; the cost is shown first."""
    name = job_id(cli.client, job)
    lying = cli.client.get(f"{JOBS}/{name}/storage")
    if to is None:
        cli.show(lying, lambda: _lying(lying))
        return
    path = f"{JOBS}/{name}/{_which(lying, checkpoint)}/tier"
    wish = {"tier": str(to), "priority": str(priority)}
    quote = cli.client.post(path, wish | {"dry_run": True})
    if dry_run:
        cli.show(quote, lambda: _quoted(quote))
        return
    if not yes:
        _ask(cli, quote)
    moved = cli.client.post(path, wish)
    cli.show(moved, lambda: [*(_quoted(quote) if yes else ()), _said(name, moved)])


def _which(lying: Json, checkpoint: str | None) -> str:
    """The end of its address; a checkpoint may be named by its step."""
    if checkpoint is None:
        return "model"
    for folder in lying["folders"]:
        if folder["checkpoint"] and checkpoint in (
            folder["checkpoint"],
            str(folder["step_number"]),
        ):
            return f"checkpoints/{folder['checkpoint']}"
    raise Trouble(
        f"The job has no checkpoint {checkpoint!r}.",
        f"rekindle tier {lying['job']} shows those that it has.",
        exit_code=ExitCode.NOT_FOUND,
        code="checkpoint_not_found",
    )


def _ask(cli: Cli, quote: Json) -> None:
    """Show the price and have it confirmed; where nobody can be asked, nothing is moved."""
    if cli.as_json or not cli.out.is_terminal:
        raise Trouble(
            f"Moving costs {money(part(quote, 'cost').get('once'))} and nobody can be asked here.",
            "Say --yes to move it, or --dry-run for all of the cost.",
            exit_code=ExitCode.USAGE,
            code="not_confirmed",
        )
    cli.show(quote, lambda: _quoted(quote))
    if not typer.confirm("Move it?", default=False):
        raise Trouble("Nothing was moved.", code="not_confirmed")


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
    yield f"{formats.size(shown['bytes'])} in {blobs}; storage has cost {spent} so far{monthly}."


def _what(folder: Mapping[str, Any]) -> str:
    return "model" if folder["kind"] == "model" else f"checkpoint of step {folder['step_number']}"


def _state(folder: Json) -> str:
    if folder["state"] == "archived":
        ways = part(folder, "rehydrate")
        standard, high = part(ways, "standard"), part(ways, "high")
        return (
            f"archived; back in {formats.duration(standard.get('seconds_at_most'))} for "
            f"{money(standard.get('cost'))}, in {formats.duration(high.get('seconds_at_most'))} "
            f"for {money(high.get('cost'))}"
        )
    if folder["state"] == "rehydrating":
        back = part(folder, "rehydrating")
        when = formats.clock(back.get("expected_at"), day=True)
        return f"coming back ({back.get('priority')}), at the latest {when}"
    going = folder.get("moving_to")
    return f"moving to {going}" if going else str(folder["state"])


def _quoted(quote: Json) -> Iterable[Any]:
    bill, unit = part(quote, "cost"), part(quote, "cost").get("currency", "USD")
    moves, prices = part(quote, "moves"), part(quote, "prices")
    blobs = formats.count(moves.get("blobs", 0), "blob")
    pairs = [
        ("move", f"{_what(quote)}: {blobs}, {formats.size(moves.get('bytes'))}, to {quote['to']}"),
        ("once", money(bill.get("once"), unit)),
        ("of it early deletion", money(bill.get("early_deletion"), unit)),
        ("a month", f"{_money(bill, 'a_month_after')} instead of {_money(bill, 'a_month_before')}"),
        ("to read it all", money(bill.get("read_back"), unit)),
    ]
    if bill.get("free_to_leave_at"):
        until = formats.clock(bill["free_to_leave_at"], day=True)
        pairs.append(("to leave for free", f"from {until} on"))
    pairs.append(("prices", f"{prices.get('source')}, of {prices.get('as_of')}"))
    yield views.facts(pairs)


def _money(bill: Mapping[str, Any], name: str) -> str:
    return money(bill.get(name), bill.get("currency", "USD"))


def _said(job: str, moved: Json) -> str:
    if moved["id"] is None:
        return f"The {_what(moved)} is in {moved['to']} already."
    when = moved.get("expected_at")
    soon = f", at the latest {formats.clock(when, day=True)}" if when else ""
    return f"The {_what(moved)} moves to {moved['to']}{soon}. Next: rekindle tier {job}"
