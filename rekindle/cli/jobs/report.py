"""`rekindle report`: one HTML file about a job that opens without a network.

The service has the page as a template, made of the console's own panels; here the job's data is
put into it.
"""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rekindle.cli.command import Cli
from rekindle.cli.errors import ExitCode, Trouble
from rekindle.cli.job_lookup import JOBS, JobArgument, job_id

if TYPE_CHECKING:
    from rekindle.cli.api_client import Client

MAX_POINTS = 2_000  # of a curve
_EVENTS = 100
_DATA = '<script type="application/json" id="report-data">null</script>'
_PART = ".part"


def report(
    cli: Cli,
    job: JobArgument,
    file: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="File to write; default: JOB.html."),
    ] = None,
) -> None:
    """Write one HTML file with curves, timeline, cost, configuration and model card of a job."""
    name = job_id(cli.client, job)
    page = fill_template(_template(cli.client), collect_data(cli.client, name, time.time()))
    path = file or Path(f"{name}.html")
    _write(path, page)
    document = {"object": "report", "job": name, "file": str(path), "bytes": len(page.encode())}
    cli.show(document, lambda: [f"The report is in {path}. It opens without a network."])


def collect_data(client: "Client", name: str, now: float) -> dict[str, Any]:
    """Read what the report shows of the job from the service."""
    job = client.get(f"{JOBS}/{name}")
    return {
        "made_at": int(now),
        "job": job,
        "attempts": client.get(f"{JOBS}/{name}/attempts"),
        "events": client.get(f"{JOBS}/{name}/events", limit=_EVENTS),
        "metrics": client.get(f"{JOBS}/{name}/metrics", max_points=MAX_POINTS),
        "card": _card(client, name) if job["result"] is not None else None,
    }


def fill_template(template: str, data: dict[str, Any]) -> str:
    """The page with this data; no text of it can end the script element that it lies in."""
    if _DATA not in template:
        raise Trouble("The service's report page is of another release.", "Update the command.")
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return template.replace(_DATA, _DATA.replace("null", text, 1), 1)


def _template(client: "Client") -> str:
    address = client.connection.url.removesuffix("/v1") + "/report.html"
    try:
        answer = client.send("GET", address)
    except Trouble as trouble:
        if trouble.exit_code is not ExitCode.NOT_FOUND:
            raise
        raise Trouble("The service has no console.", "Build it: make setup.") from trouble
    return answer.text


def _card(client: "Client", name: str) -> str | None:
    """The model's README.md; None where the model was deleted or is in the archive tier."""
    try:
        return client.send("GET", f"{JOBS}/{name}/model/README.md").text
    except Trouble as trouble:
        if trouble.exit_code is ExitCode.NOT_FOUND:
            return None
        raise


def _write(path: Path, page: str) -> None:
    """Write beside the file, then rename: half a report is never seen."""
    part = path.with_name(path.name + _PART)
    try:
        part.write_text(page, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise Trouble(f"{path} cannot be written: {error.strerror}.") from error
