"""Output of the demo: events, a progress line, and a table of attempts and costs."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.status import Status
from rich.table import Table
from rich.text import Text

from rekindle.terminal import Console

PROGRESS_SECONDS = 10.0  # between progress lines where there is no live line
_PLAIN_WIDTH = 140  # columns in a log: wide enough for the table
_STYLES = {"info": "", "warn": "yellow", "error": "bold red"}


class DemoView:
    """Prints the demo with a live line on a terminal, or plain lines without one."""

    def __init__(
        self, console: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console or open_console()
        self._clock = clock
        self._printed_at = clock()
        self._status: Status | None = None
        self._printed_events: set[str] = set()

    @contextmanager
    def show_progress_line(self) -> Iterator[None]:
        """Keep a progress line at the bottom while the context is open."""
        with self._console.status("waiting") as status:
            self._status = status
            yield
            self._status = None

    def print_answers(self, question: str, base: str, tuned: str) -> None:
        """Show the answers of the base model and the tuned model to one question."""
        self._console.rule(question)
        table = Table(box=None, show_header=False)
        table.add_row("base model ", Text(base))
        table.add_row("tuned model", Text(tuned, style="green"))
        self._console.print(table)

    def print_line(self, text: str, *, style: str = "") -> None:
        """Print one line."""
        self._printed_at = self._clock()
        self._console.print(text, style=style or None)

    def save_svg(self, picture: Path) -> None:
        """Save the recorded session as SVG."""
        self._console.save_svg(str(picture), title="make demo")

    def print_plan(self, title: str, job: dict[str, Any]) -> None:
        """Print the service's plan of the job."""
        plan = job["plan"]
        chosen = plan["options"][0]
        self._console.rule(f"{job['id']}: {title}")
        self.print_line(
            f"plan: {job['progress']['total_steps']} steps, "
            f"forecast {job['cost']['planned_total']} {job['cost']['currency']}, "
            f"on demand {chosen['on_demand_cost']}"
        )

    def update_job(self, job: dict[str, Any], events: Sequence[dict[str, Any]]) -> None:
        """Print new events and update the live line."""
        for event in events:
            if event["id"] not in self._printed_events:
                self._printed_events.add(event["id"])
                self.print_line(f"  {event['message']}", style=_STYLES[event["level"]])
        progress, cost = job["progress"], job["cost"]
        line = (
            f"{job['phase']}  step {progress['step']}/{progress['total_steps']}  "
            f"spent {cost['spent']}  forecast {cost['forecast_total']} {cost['currency']}  "
            f"evictions {job['attempts']['evictions']}"
        )
        if self._status is not None:
            self._status.update(line)
        if not self._console.is_terminal and self._clock() - self._printed_at >= PROGRESS_SECONDS:
            self.print_line(f"  {line}")

    def print_attempts(
        self, job: dict[str, Any], attempts: Sequence[dict[str, Any]], twin: dict[str, Any]
    ) -> None:
        """Print a table of attempts with their machines, outcomes and costs."""
        table = Table(title="Attempts and costs", box=SIMPLE)
        for column in ("#", "machines and outcome"):
            table.add_column(column)
        for column in ("steps", "lost", "machine h", "USD"):
            table.add_column(column, justify="right", no_wrap=True)
        for a in attempts:
            where = f"{a['nodes']} x {a['sku']}\nin {a['region']} ({a['capacity']})"
            ended = f"{a['outcome'] or a['state']}: {a['reason']}"
            steps = f"{a['from_step']} to {a['last_step']}"
            row = (str(a["number"]), f"{where}\n{ended}", steps, str(a["lost_steps"]))
            table.add_row(*row, a["machine_hours"], a["cost"])
        self._console.print(table)
        cost, twin_cost = job["cost"], twin["cost"]
        self.print_line(
            f"spent {cost['spent']}, on demand {cost['on_demand_equivalent']}: "
            f"saved {cost['saved']} USD ({cost['saved_percent']} %). "
            f"The uninterrupted twin spent {twin_cost['spent']}."
        )


def open_console(*, record: bool = False) -> Console:
    """Return a console; a log is wide enough for tables. ``record``: for `DemoView.save`."""
    console = Console(record=record)
    if console.is_terminal:
        return console
    return Console(width=_PLAIN_WIDTH, record=record)
