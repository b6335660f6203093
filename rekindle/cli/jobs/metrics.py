"""`rekindle metrics`: export the metrics of every training step.

The metrics come from the service; training nodes are not involved.
"""

import csv
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from contract import events_file
from contract.figures import tagged
from rekindle.cli.command import Cli
from rekindle.cli.job_lookup import JOBS, JobArgument, resolve_job_id
from rekindle.cli.jobs import trackers
from rekindle.cli.output_file import partial_file

if TYPE_CHECKING:
    from rekindle.cli.api_client import ApiClient

Json = dict[str, Any]
_PAGE = 10_000  # steps


def export_metrics(
    cli: Cli,
    job: JobArgument,
    csv_file: Annotated[
        Path | None,
        typer.Option(
            "--csv", metavar="FILE", help="CSV file to write instead of printing to the terminal."
        ),
    ] = None,
    tensorboard: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder for TensorBoard event files; writes into DIR/JOB."
        ),
    ] = None,
    mlflow: Annotated[
        str | None, typer.Option(metavar="URI", help="MLflow tracking URI to copy the metrics to.")
    ] = None,
    wandb: Annotated[
        str | None,
        typer.Option(metavar="PROJECT", help="Weights & Biases project to copy the metrics to."),
    ] = None,
) -> None:
    """Show the metrics of every training step as CSV, or export them to trackers."""
    name = resolve_job_id(cli.client, job)
    rows = list(_read_steps(cli.client, name))
    created_at = float(cli.client.get(f"{JOBS}/{name}")["created_at"])
    destinations: list[Path | str] = []
    if csv_file is not None:
        destinations.append(_write_file(csv_file, _encode_csv(rows)))
    if tensorboard is not None:
        destinations.append(
            _write_file(_event_file_path(tensorboard, name), _encode_events(rows, created_at))
        )
    if mlflow is not None:
        destinations.append(
            trackers.copy_to_mlflow(mlflow, name, list(_timed_metrics(rows, created_at)))
        )
    if wandb is not None:
        destinations.append(
            trackers.copy_to_wandb(wandb, name, list(_timed_metrics(rows, created_at)))
        )
    if cli.as_json:
        document = {"object": "list", "job": name, "data": rows}
        cli.print_json(document | {"files": [str(path) for path in destinations]}, indent=2)
    elif destinations:
        for path in destinations:
            cli.print_note(f"wrote {len(rows)} steps to {path}")
    else:
        _write_csv(rows, sys.stdout)


def _read_steps(client: "ApiClient", name: str) -> Iterator[Json]:
    """Yield all steps, page by page."""
    after = None
    while True:
        page = client.get(f"{JOBS}/{name}/metrics", limit=_PAGE, after=after)
        yield from page["data"]
        if not page["has_more"]:
            return
        after = page["data"][-1]["step"]


def _event_file_path(folder: Path, name: str) -> Path:
    """Return one file name per job, so that a later export replaces an earlier one."""
    return folder / name / "events.out.tfevents.0.rekindle"


def _encode_events(rows: Iterable[Json], created_at: float) -> bytes:
    """Return all steps as one event file."""
    parts = [
        events_file.event(at, step, values) for step, at, values in _timed_metrics(rows, created_at)
    ]
    return b"".join([events_file.beginning(created_at), *parts])


def _timed_metrics(
    rows: Iterable[Json], created_at: float
) -> Iterator[tuple[int, float, dict[str, float]]]:
    """Yield step, time and metrics; times are the job's creation plus the seconds trained."""
    now = created_at
    for row in rows:
        now += row["seconds"]
        yield row["step"], now, tagged(row)


def _encode_csv(rows: list[Json]) -> bytes:
    from io import StringIO

    text = StringIO(newline="")
    _write_csv(rows, text)
    return text.getvalue().encode()


def _write_csv(rows: list[Json], file: TextIO) -> None:
    """Write a column for each metric; values that were not measured are empty."""
    writer = csv.DictWriter(file, list(rows[0]) if rows else ["step"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def _write_file(path: Path, data: bytes) -> Path:
    """Write the file, and its folder if needed."""
    with partial_file(path) as part_path:
        part_path.parent.mkdir(parents=True, exist_ok=True)
        part_path.write_bytes(data)
    return path
