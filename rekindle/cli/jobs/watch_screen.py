"""Watch a job on a terminal: one live view of the job and its newest events."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rekindle.cli import formats
from rekindle.cli.formats import DASH, money, object_member
from rekindle.cli.jobs import views
from rekindle.terminal import Console

if TYPE_CHECKING:
    from rekindle.cli.errors import ServiceUnreachable
    from rekindle.cli.jobs.job_feed import JobUpdate

Json = Mapping[str, Any]
_EVENTS = 8  # the newest ones that the view shows
_HINT = "Ctrl-C stops watching; the job continues."


class LiveView:
    """The live view; redrawn twice a second, as times in it advance."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._update: JobUpdate | None = None
        self._events: deque[Json] = deque(maxlen=_EVENTS)
        self._outage = ""

    def show_update(self, update: "JobUpdate") -> None:
        """Keep the update for the next drawing."""
        self._update, self._outage = update, ""
        self._events.extend(update.events)

    def show_outage(self, error: "ServiceUnreachable") -> None:
        """Show below the view that the service does not answer."""
        self._outage = f"{error.message} The job continues meanwhile; retrying."

    def __rich__(self) -> RenderableType:
        """Return what rich draws."""
        if self._update is None:
            return Text("connecting to the service ...", style="dim")
        return job_view(self._update.job, list(self._events), self._now(), self._outage)


@contextmanager
def open_screen(console: Console, now: Callable[[], float]) -> Iterator[LiveView]:
    """Show the live view while the context is open; its last state stays on the terminal."""
    view = LiveView(now)
    with Live(view, console=console, refresh_per_second=2, vertical_overflow="crop"):
        yield view


def job_view(job: Json, events: list[Json], now: float, outage: str = "") -> RenderableType:
    """Return the view of one job: phase, progress, cost and newest events."""
    has_ended = formats.has_ended(job)
    pieces: list[RenderableType] = [views.job_heading(job)]
    if why := object_member(job, "error").get("message") or formats.reason(job):
        pieces.append(Text(formats.printable_line(why), style="red" if job.get("error") else ""))
    pieces += [_progress_row(job), views.facts_table(list(_live_facts(job, now))), Text("")]
    pieces.append(_event_table(events))
    if outage:
        pieces.append(Text(outage, style="bold yellow"))
    pieces.append(Text(views.next_steps(job) if has_ended else _HINT, style="dim"))
    return Group(*pieces)


def _event_table(events: list[Json]) -> Table:
    """Return the events as a table, so that long messages wrap below themselves."""
    table = Table.grid(padding=(0, 2))
    for event in events:
        table.add_row(*views.event_cells(event))
    return table


def _progress_row(job: Json) -> RenderableType:
    progress = object_member(job, "progress")
    step, total = progress.get("step") or 0, progress.get("total_steps") or 0
    percent = progress.get("percent")
    row = Table.grid(padding=(0, 1), expand=False)
    row.add_row(
        ProgressBar(total=total or 1, completed=step, width=30),
        Text(f"{step:,}/{total:,} steps" if total else DASH),
        Text(f"{percent:.0f} %" if isinstance(percent, int | float) else ""),
    )
    return row


def _live_facts(job: Json, now: float) -> Iterator[tuple[str, str]]:
    cost, attempts = object_member(job, "cost"), object_member(job, "attempts")
    unit = cost.get("currency", "USD")
    yield "model", formats.printable_line(job.get("model", DASH))
    if speed := views.speed_summary(job):
        yield "speed", speed
    yield from views.micro_batch_facts(job)
    yield (
        "cost",
        f"{money(cost.get('spent'), unit)} so far · "
        f"{money(cost.get('forecast_total'), unit)} forecast · "
        f"{money(cost.get('planned_total'), unit)} planned",
    )
    yield "saved", f"{views.amount_saved(cost)} compared to on-demand"
    yield from views.limit_facts(job)
    lost_steps = object_member(job, "progress").get("lost_steps")
    repeated = (
        f" · {formats.count(lost_steps, 'step')} repeated" if isinstance(lost_steps, int) else ""
    )
    number = attempts.get("count", DASH)
    yield "evictions", f"{attempts.get('evictions', DASH)} · attempt {number}{repeated}"
    if checkpoint := object_member(job, "latest_checkpoint"):
        when = formats.time_since(checkpoint.get("created_at"), now)
        yield "checkpoint", f"step {checkpoint.get('step_number')}, {when}"
    yield from views.admission_facts(job, now)
    yield "time", _time_summary(job, now)
    if unknown := object_member(job, "forecast").get("unknown_because"):
        yield "finishes in", formats.printable_line(unknown)


def _time_summary(job: Json, now: float) -> str:
    created = job.get("created_at")
    if not isinstance(created, int):
        return DASH
    if job.get("finished_at"):
        return formats.duration(job["finished_at"] - created)
    finish = job.get("estimated_finish")
    about = f" · about {formats.duration(finish - now)} left" if isinstance(finish, int) else ""
    return f"{formats.duration(now - created)}{about}"
