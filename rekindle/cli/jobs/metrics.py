"""`rekindle metrics`: what every training step measured, as CSV or for other programs.

The numbers are the service's; a job's nodes know nothing of this.
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
from rekindle.cli.errors import Trouble
from rekindle.cli.job_lookup import JOBS, JobArgument, job_id
from rekindle.cli.jobs import trackers

if TYPE_CHECKING:
    from rekindle.cli.api_client import Client

Json = dict[str, Any]
_PAGE = 10_000  # steps
_PART = ".part"


def metrics(
    cli: Cli,
    job: JobArgument,
    csv_file: Annotated[
        Path | None,
        typer.Option("--csv", metavar="FILE", help="Write the table here and not to the terminal."),
    ] = None,
    tensorboard: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write an event file into the job's folder in here."),
    ] = None,
    mlflow: Annotated[
        str | None, typer.Option(metavar="URI", help="Copy them into a run of this MLflow.")
    ] = None,
    wandb: Annotated[
        str | None,
        typer.Option(metavar="PROJECT", help="Copy them into a run of Weights & Biases."),
    ] = None,
) -> None:
    """What every training step measured: loss, speed and the rest, as CSV or for other programs."""
    name = job_id(cli.client, job)
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
            cli.note(f"{len(rows)} steps are in {path}")
    else:
        _print_csv(rows, sys.stdout)


def _rows(client: "Client", name: str) -> Iterator[Json]:
    """All steps, page by page."""
    after = None
    while True:
        answer = client.get(f"{JOBS}/{name}/metrics", limit=_PAGE, after=after)
        yield from answer["data"]
        if not answer["has_more"]:
            return
        after = answer["data"][-1]["step"]


def _event_file(folder: Path, name: str) -> Path:
    """One of this name for a job, so that a later look replaces an earlier one."""
    return folder / name / "events.out.tfevents.0.rekindle"


def _as_events(rows: Iterable[Json], began: float) -> bytes:
    """All of them in one file."""
    parts = [events_file.event(at, step, found) for step, at, found in _dated(rows, began)]
    return b"".join([events_file.beginning(began), *parts])


def _dated(rows: Iterable[Json], began: float) -> Iterator[tuple[int, float, dict[str, float]]]:
    """The times are those of the job's creation and the seconds trained since, without stops."""
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
    """A column for each figure of the API; what was not measured is empty."""
    writer = csv.DictWriter(file, list(rows[0]) if rows else ["step"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def _write(path: Path, data: bytes) -> Path:
    """The whole file or nothing of it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + _PART)
        part.write_bytes(data)
        part.replace(path)
    except OSError as error:
        raise Trouble(f"{path} cannot be written: {error.strerror}.") from error
    return path
