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


def metrics(
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
    rows = list(_rows(cli.client, name))
    began = float(cli.client.get(f"{JOBS}/{name}")["created_at"])
    written: list[Path | str] = []
    if csv_file is not None:
        written.append(_write(csv_file, _as_csv(rows)))
    if tensorboard is not None:
        written.append(_write(_event_file(tensorboard, name), _as_events(rows, began)))
    if mlflow is not None:
        written.append(trackers.to_mlflow(mlflow, name, list(_dated(rows, began))))
    if wandb is not None:
        written.append(trackers.to_wandb(wandb, name, list(_dated(rows, began))))
    if cli.as_json:
        document = {"object": "list", "job": name, "data": rows}
        cli.line(document | {"files": [str(path) for path in written]}, indent=2)
    elif written:
        for path in written:
            cli.note(f"wrote {len(rows)} steps to {path}")
    else:
        _print_csv(rows, sys.stdout)


def _rows(client: "ApiClient", name: str) -> Iterator[Json]:
    """Yield all steps, page by page."""
    after = None
    while True:
        answer = client.get(f"{JOBS}/{name}/metrics", limit=_PAGE, after=after)
        yield from answer["data"]
        if not answer["has_more"]:
            return
        after = answer["data"][-1]["step"]


def _event_file(folder: Path, name: str) -> Path:
    """Return one file name per job, so that a later export replaces an earlier one."""
    return folder / name / "events.out.tfevents.0.rekindle"


def _as_events(rows: Iterable[Json], began: float) -> bytes:
    """Return all steps as one event file."""
    parts = [events_file.event(at, step, found) for step, at, found in _dated(rows, began)]
    return b"".join([events_file.beginning(began), *parts])


def _dated(rows: Iterable[Json], began: float) -> Iterator[tuple[int, float, dict[str, float]]]:
    """Yield step, time and metrics; times are the job's creation plus the seconds trained."""
    now = began
    for row in rows:
        now += row["seconds"]
        yield row["step"], now, tagged(row)


def _as_csv(rows: list[Json]) -> bytes:
    from io import StringIO

    text = StringIO(newline="")
    _print_csv(rows, text)
    return text.getvalue().encode()


def _print_csv(rows: list[Json], file: TextIO) -> None:
    """Write a column for each metric; values that were not measured are empty."""
    writer = csv.DictWriter(file, list(rows[0]) if rows else ["step"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def _write(path: Path, data: bytes) -> Path:
    """Write the file, and its folder if needed."""
    with partial_file(path) as part:
        part.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(data)
    return path
