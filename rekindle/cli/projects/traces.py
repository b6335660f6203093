"""`rekindle traces export`: what your own jobs saw of Spot capacity, as files for simulations."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from rekindle.cli.command import Cli
from rekindle.cli.errors import ExitCode, Trouble

Json = dict[str, Any]
TRACES = "/organization/traces"


def export_traces(
    cli: Cli,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new or an empty folder.")],
    days: Annotated[int, typer.Option(min=1, max=90, help="How far back.")] = 30,
    gap: Annotated[int, typer.Option(min=60, max=3600, help="Seconds between two counts.")] = 300,
) -> None:
    """Write a trace file for each place where Spot was held or asked for. For operators."""
    _check(folder)
    found = list(_all(cli, days, gap))
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for one in found:
        file = folder / f"{one['region']}_{one['vm_size']}.json"
        file.write_text(json.dumps(one["trace"]))
        told = {name: one[name] for name in ("region", "vm_size", "seen_percent")}
        written.append({"file": str(file), **told, "counts": len(one["trace"]["data"])})
    cli.show({"object": "list", "data": written}, lambda: _lines(written, folder, days))


def _check(folder: Path) -> None:
    if folder.is_file() or (folder.is_dir() and any(folder.rglob("*.json"))):
        raise Trouble(
            f"{folder} is a file or holds .json files already.",
            "Name a new folder: files of two exports together would be replayed as one.",
            exit_code=ExitCode.USAGE,
        )


def _all(cli: Cli, days: int, gap: int) -> Iterable[Json]:
    """Every page, all of the same time; places of which nothing is known are left out."""
    after, until = None, None
    while True:
        page = cli.client.get(TRACES, days=days, gap_seconds=gap, until=until, after=after)
        yield from (one for one in page["data"] if one["trace"])
        if not page["has_more"]:
            return
        after, until = page["last_id"], page["until"]


def _lines(written: list[Json], folder: Path, days: int) -> Iterable[str]:
    if not written:
        yield (
            f"Nothing was seen of Spot in the last {days} days, but for the newest minutes. "
            "Run jobs on Spot first."
        )
        return
    for one in written:
        yield f"{one['file']}: {one['counts']} counts, {one['seen_percent']:g} % of them seen"
    yield f"Replay them: python -m bench.policy --traces {folder}"
