"""`rekindle traces export`: Spot capacity that your jobs observed, as files for simulations."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from rekindle.cli.command import Cli
from rekindle.cli.errors import CliError, ExitCode

Json = dict[str, Any]
TRACES = "/organization/traces"


def export_traces(
    cli: Cli,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Target folder, new or empty.")],
    days: Annotated[int, typer.Option(min=1, max=90, help="Number of days to export.")] = 30,
    gap: Annotated[
        int, typer.Option(min=60, max=3600, help="Interval between two capacity counts in seconds.")
    ] = 300,
) -> None:
    """Export one trace file per region and size with observed Spot capacity (operators only)."""
    _require_empty_folder(folder)
    entries = list(_read_traces(cli, days, gap))
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for entry in entries:
        file = folder / f"{entry['region']}_{entry['vm_size']}.json"
        file.write_text(json.dumps(entry["trace"]))
        labels = {name: entry[name] for name in ("region", "vm_size", "seen_percent")}
        files.append({"file": str(file), **labels, "counts": len(entry["trace"]["data"])})
    cli.print_result({"object": "list", "data": files}, lambda: _result_lines(files, folder, days))


def _require_empty_folder(folder: Path) -> None:
    if folder.is_file() or (folder.is_dir() and any(folder.rglob("*.json"))):
        raise CliError(
            f"{folder} is a file or already contains .json files.",
            "Pass a new folder; a simulation would mix the files of two exports.",
            exit_code=ExitCode.USAGE,
        )


def _read_traces(cli: Cli, days: int, gap: int) -> Iterable[Json]:
    """Yield every page, all as of the same time; pools without observations are left out."""
    after, until = None, None
    while True:
        page = cli.client.get(TRACES, days=days, gap_seconds=gap, until=until, after=after)
        yield from (entry for entry in page["data"] if entry["trace"])
        if not page["has_more"]:
            return
        after, until = page["last_id"], page["until"]


def _result_lines(files: list[Json], folder: Path, days: int) -> Iterable[str]:
    if not files:
        yield (f"No Spot capacity was observed in the last {days} days. Run jobs on Spot first.")
        return
    for entry in files:
        yield f"{entry['file']}: {entry['counts']} counts, {entry['seen_percent']:g} % observed"
    yield f"Replay them: python -m bench.policy --traces {folder}"
