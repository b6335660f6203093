"""`rekindle report`: write one HTML file about a job that opens without a network.

The service provides the page as a template made of the console's panels; this module inserts the
job's data.
"""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rekindle.cli.command import Cli
from rekindle.cli.errors import CliError, ExitCode
from rekindle.cli.job_lookup import JOBS, JobArgument, resolve_job_id
from rekindle.cli.output_file import partial_file

if TYPE_CHECKING:
    from rekindle.cli.api_client import ApiClient

MAX_POINTS = 2_000  # per curve
_EVENTS = 100
_DATA_ELEMENT = '<script type="application/json" id="report-data">null</script>'


def write_report(
    cli: Cli,
    job: JobArgument,
    file: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="File to write; default: JOB.html."),
    ] = None,
) -> None:
    """Write an HTML report: curves, timeline, cost, configuration and model card."""
    name = resolve_job_id(cli.client, job)
    page = fill_template(_read_template(cli.client), collect_data(cli.client, name, time.time()))
    path = file or Path(f"{name}.html")
    with partial_file(path) as part_path:
        part_path.write_text(page, encoding="utf-8")
    document = {"object": "report", "job": name, "file": str(path), "bytes": len(page.encode())}
    cli.print_result(document, lambda: [f"Wrote {path}; it opens without a network."])


def collect_data(client: "ApiClient", name: str, now: float) -> dict[str, Any]:
    """Read the report's data from the service."""
    job = client.get(f"{JOBS}/{name}")
    return {
        "made_at": int(now),
        "job": job,
        "attempts": client.get(f"{JOBS}/{name}/attempts"),
        "events": client.get(f"{JOBS}/{name}/events", limit=_EVENTS),
        "metrics": client.get(f"{JOBS}/{name}/metrics", max_points=MAX_POINTS),
        "card": _read_model_card(client, name) if job["result"] is not None else None,
    }


def fill_template(template: str, data: dict[str, Any]) -> str:
    """Insert the data into the template; escape `<`, so that no text ends the script element."""
    if _DATA_ELEMENT not in template:
        raise CliError(
            "The service's report template is from another release.",
            "Update the `rekindle` command.",
        )
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return template.replace(_DATA_ELEMENT, _DATA_ELEMENT.replace("null", text, 1), 1)


def _read_template(client: "ApiClient") -> str:
    address = client.connection.url.removesuffix("/v1") + "/report.html"
    try:
        response = client.send("GET", address)
    except CliError as error:
        if error.exit_code is not ExitCode.NOT_FOUND:
            raise
        raise CliError(
            "The service was started without the console.", "Build the console: make setup."
        ) from error
    return response.text


def _read_model_card(client: "ApiClient", name: str) -> str | None:
    """Return the model's README.md; None if the model was deleted or archived."""
    try:
        return client.send("GET", f"{JOBS}/{name}/model/README.md").text
    except CliError as error:
        if error.exit_code is ExitCode.NOT_FOUND:
            return None
        raise
