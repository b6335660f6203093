"""`rekindle tier`: storage tiers of a job's checkpoints and model, and what a move costs."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.text import Text

from rekindle.cli import formats
from rekindle.cli.command import Cli
from rekindle.cli.errors import CliError, ExitCode
from rekindle.cli.formats import money, object_member
from rekindle.cli.job_lookup import JOBS, JobArgument, resolve_job_id
from rekindle.cli.jobs import views
from rekindle.cli.tables import new_table

Json = dict[str, Any]
_COLUMNS = ("what", "id", "size", "tier")


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
    storage = cli.client.get(f"{JOBS}/{name}/storage")
    if to is None:
        cli.print_result(storage, lambda: _storage_lines(storage))
        return
    path = f"{JOBS}/{name}/{_target_path(storage, checkpoint)}/tier"
    request = {"tier": str(to), "priority": str(priority)}
    quote = cli.client.post(path, request | {"dry_run": True})
    if dry_run:
        cli.print_result(quote, lambda: _quote_lines(quote))
        return
    if not yes:
        _confirm_move(cli, quote)
    response = cli.client.post(path, request)
    cli.print_result(
        response, lambda: [*(_quote_lines(quote) if yes else ()), _move_line(name, response)]
    )


def _target_path(storage: Json, checkpoint: str | None) -> str:
    """Return the last part of the API path; a checkpoint may be given by its step."""
    if checkpoint is None:
        return "model"
    for folder in storage["folders"]:
        if folder["checkpoint"] and checkpoint in (
            folder["checkpoint"],
            str(folder["step_number"]),
        ):
            return f"checkpoints/{folder['checkpoint']}"
    raise CliError(
        f"The job has no checkpoint {checkpoint!r}.",
        f"List its checkpoints: rekindle tier {storage['job']}",
        exit_code=ExitCode.NOT_FOUND,
        code="checkpoint_not_found",
    )


def _confirm_move(cli: Cli, quote: Json) -> None:
    """Show the cost and ask for confirmation; raise CliError without a terminal or consent."""
    if cli.as_json or not cli.out.is_terminal:
        cost = money(object_member(quote, "cost").get("once"))
        raise CliError(
            f"Moving costs {cost}; not an interactive terminal.",
            "Pass --yes to confirm, or --dry-run to show all costs.",
            exit_code=ExitCode.USAGE,
            code="not_confirmed",
        )
    cli.print_result(quote, lambda: _quote_lines(quote))
    if not typer.confirm("Move to this tier?", default=False):
        raise CliError("Nothing was moved.", code="not_confirmed")


def _storage_lines(storage: Json) -> Iterable[Any]:
    table = new_table(*_COLUMNS, "state", no_wrap=_COLUMNS)
    for folder in storage["folders"]:
        table.add_row(
            _folder_label(folder),
            folder["checkpoint"] or "-",
            formats.size(folder["bytes"]),
            folder["tier"],
            Text(_state_text(folder)),
        )
    yield table if storage["folders"] else "Nothing is committed yet."
    unit = storage.get("currency", "USD")
    monthly = f", {money(storage['a_month'], unit)} a month" if "a_month" in storage else ""
    spent = money(storage["spent"], unit)
    blobs = formats.count(storage["blobs"], "blob")
    yield f"{formats.size(storage['bytes'])} in {blobs}; storage cost so far: {spent}{monthly}."


def _folder_label(folder: Mapping[str, Any]) -> str:
    return "model" if folder["kind"] == "model" else f"checkpoint of step {folder['step_number']}"


def _state_text(folder: Json) -> str:
    if folder["state"] == "archived":
        options = object_member(folder, "rehydrate")
        standard, high = object_member(options, "standard"), object_member(options, "high")
        return (
            f"archived; rehydrates in {formats.duration(standard.get('seconds_at_most'))} for "
            f"{money(standard.get('cost'))}, in {formats.duration(high.get('seconds_at_most'))} "
            f"for {money(high.get('cost'))}"
        )
    if folder["state"] == "rehydrating":
        rehydration = object_member(folder, "rehydrating")
        when = formats.local_time(rehydration.get("expected_at"), day=True)
        return f"rehydrating ({rehydration.get('priority')} priority), at the latest {when}"
    target = folder.get("moving_to")
    return f"moving to {target}" if target else str(folder["state"])


def _quote_lines(quote: Json) -> Iterable[Any]:
    cost, unit = object_member(quote, "cost"), object_member(quote, "cost").get("currency", "USD")
    moves, prices = object_member(quote, "moves"), object_member(quote, "prices")
    blobs = formats.count(moves.get("blobs", 0), "blob")
    before, after = (money(cost.get(f"a_month_{when}"), unit) for when in ("before", "after"))
    size = formats.size(moves.get("bytes"))
    pairs = [
        ("move", f"{_folder_label(quote)}: {blobs}, {size}, to {quote['to']}"),
        ("once", money(cost.get("once"), unit)),
        ("early deletion (included)", money(cost.get("early_deletion"), unit)),
        ("per month", f"{after} instead of {before}"),
        ("to read all of it", money(cost.get("read_back"), unit)),
    ]
    if cost.get("free_to_leave_at"):
        until = formats.local_time(cost["free_to_leave_at"], day=True)
        pairs.append(("free to leave", f"from {until} on"))
    pairs.append(("prices", f"{prices.get('source')}, of {prices.get('as_of')}"))
    yield views.facts_table(pairs)


def _move_line(job: str, response: Json) -> str:
    if response["id"] is None:
        return f"The {_folder_label(response)} is already in {response['to']}."
    when = response.get("expected_at")
    soon = f", at the latest {formats.local_time(when, day=True)}" if when else ""
    return (
        f"The {_folder_label(response)} moves to {response['to']}{soon}. Next: rekindle tier {job}"
    )
