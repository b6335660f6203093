"""Watch a job without a terminal: one line per change, as text or JSON."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rekindle.cli import formats
from rekindle.cli.formats import money, object_member
from rekindle.cli.jobs import views

if TYPE_CHECKING:
    from rekindle.cli.errors import ServiceUnreachable
    from rekindle.cli.jobs.job_feed import JobUpdate
    from rekindle.terminal import Console

Json = Mapping[str, Any]
PROGRESS_SECONDS = 5.0  # least time between two lines that differ only in the step


class LineView:
    """Prints updates as text lines that begin with the time."""

    def __init__(self, console: "Console", now: Callable[[], float]) -> None:
        self._console = console
        self._now = now
        self._printed: tuple[str, object] = ("", None)
        self._printed_at = 0.0
        self._is_unreachable = False

    def show_update(self, update: "JobUpdate") -> None:
        """Print events, then the job if its phase changed, or its step at most every 5 s."""
        if self._is_unreachable:
            self._is_unreachable = False
            self._print_line("The service answers again.")
        for event in update.events:
            self._console.print(views.event_line(event))
        job, now = update.job, self._now()
        phase, step = formats.phase(job), object_member(job, "progress").get("step")
        # While queued, the queue position is the progress
        step = object_member(job, "queue").get("position") or step
        is_due = (phase, step) != self._printed and now - self._printed_at >= PROGRESS_SECONDS
        if phase != self._printed[0] or is_due:
            self._printed, self._printed_at = (phase, step), now
            self._print_line(job_summary(job), object_member(job, "cost").get("as_of"))
        if formats.has_ended(job):
            self._console.print(views.next_steps(job))

    def show_outage(self, error: "ServiceUnreachable") -> None:
        """Print once that the service does not answer, not at every retry."""
        if not self._is_unreachable:
            self._is_unreachable = True
            self._print_line(f"{error.message} The job continues meanwhile; retrying.")

    def _print_line(self, text: str, at: object = None) -> None:
        """Print a line with the service's own time if it gave one, as events have."""
        moment = at if isinstance(at, int | float) else self._now()
        self._console.print(f"{formats.local_time(moment)}  {text}")


class JsonView:
    """Prints jobs and events as the API returns them; their member `object` says which."""

    def __init__(self, line: Callable[[object], None]) -> None:
        self._print_json = line

    def show_update(self, update: "JobUpdate") -> None:
        """Print events before the job, as they led to its new state."""
        for event in update.events:
            self._print_json(event)
        self._print_json(update.job)

    def show_outage(self, error: "ServiceUnreachable") -> None:
        """Print the error as a line; the stream continues after it."""
        self._print_json(error.as_dict())


def job_summary(job: Json) -> str:
    """Return the job's phase, step, speed and cost on one line."""
    cost = object_member(job, "cost")
    unit = cost.get("currency", "USD")
    evictions = object_member(job, "attempts").get("evictions")
    pieces = [
        formats.phase(job),
        f"step {views.step_counts(job)}",
        views.speed_summary(job),
        f"{money(cost.get('spent'), unit)} of {money(cost.get('forecast_total'), unit)}",
        f"saved {views.amount_saved(cost)}" if views.has_spent(job) else "",
        formats.count(evictions, "eviction") if isinstance(evictions, int) else "",
    ]
    why = object_member(job, "error").get("message") or ""
    if object_member(job, "queue"):
        why = formats.reason(job)
    return " · ".join(p for p in pieces if p) + (f": {formats.printable_line(why)}" if why else "")
