"""`rekindle simulate JOB --calendar`: what the job would have cost at each hour of the week."""

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rekindle.cli.trouble import ExitCode, Trouble
from rekindle.cli.words import money

if TYPE_CHECKING:
    from rich.table import Table

Json = dict[str, Any]
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_ALIKE = 0.05  # a smaller difference between hours is none


def read(folder: Path) -> dict[str, Json]:
    """The trace files of a folder and those below, by name. Raises Trouble."""
    files = sorted(folder.rglob("*.json")) if folder.is_dir() else []
    if not files:
        raise Trouble(
            f"There are no .json files under {folder}.",
            "Name a folder that holds traces: rekindle traces export DIR makes one.",
            exit_code=ExitCode.USAGE,
        )
    return {str(file.relative_to(folder).with_suffix("")): _document(file) for file in files}


def _document(file: Path) -> Json:
    try:
        found = json.loads(file.read_text())
    except ValueError as error:
        raise Trouble(
            f"{file} is no JSON ({error}).", "Move it away.", exit_code=ExitCode.USAGE
        ) from error
    if not isinstance(found, dict):
        raise Trouble(f"{file} is no trace.", "Move it away.", exit_code=ExitCode.USAGE)
    return found


def view(found: Mapping[str, Any]) -> Iterable[Any]:
    """What it rests on, the table, and which hours stand out if any do."""
    since, until = (time.strftime("%Y-%m-%d", time.gmtime(found[m])) for m in ("since", "until"))
    yield (
        f"{since} to {until}, {found['lives']} lives, {found['seen_percent']:g} % of the capacity "
        f"seen: {', '.join(found['places'])}"
    )
    if found["doubt"]:
        yield f"Too little to go by. {found['doubt']}"
    if found.get("cut"):  # the service of the release before does not say
        yield found["cut"]
    if found["cells"]:
        yield table(found)
        yield from _summary(found)


def table(found: Mapping[str, Any]) -> "Table":
    """Median cost by hour of the day (rows) and weekday, both UTC."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    cells = {(cell["weekday"], cell["hour"]): cell for cell in found["cells"]}
    hours = {cell["hour"]: cell for cell in found["hours"]}
    shown = Table(box=SIMPLE_HEAD, title="median cost of a job that begins at this hour (UTC)")
    for column in ("hour", *_DAYS, "all"):
        shown.add_column(column, justify="right")
    for hour in sorted(hours):
        days = [_cost(cells.get((day, hour))) for day in range(7)]
        shown.add_row(f"{hour:02}:00", *days, _cost(hours[hour]))
    return shown


def _cost(cell: Mapping[str, Any] | None) -> str:
    """`-`: no job began then; `never`: those that did were not done two days beyond their work."""
    if cell is None:
        return "-"
    return "never" if cell["dollars"] is None else money(cell["dollars"])


def _summary(found: Mapping[str, Any]) -> Iterable[str]:
    whole = found["whole"]
    if whole["in_time_percent"] is not None:
        yield f"In time: {whole['in_time_percent']:g} %."
    if whole["unfinished_percent"]:
        yield f"Not done within two days of waiting: {whole['unfinished_percent']:g} %."
    priced = [cell for cell in found["hours"] if cell["dollars"] is not None]
    if len(priced) < 2 or not found["enough"]:
        return
    low, high = (f(priced, key=lambda c: float(c["dollars"])) for f in (min, max))
    if float(high["dollars"]) - float(low["dollars"]) < _ALIKE * float(high["dollars"]):
        which = "Which of these hours it is" if found.get("cut") else "The hour of the day"
        yield f"{which} makes no difference worth waiting for."
        return
    yield (
        f"Cheapest to begin at {low['hour']:02}:00 UTC ({money(low['dollars'])}), dearest at "
        f"{high['hour']:02}:00 ({money(high['dollars'])})."
    )
