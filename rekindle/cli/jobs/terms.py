"""Limits of money, time and place: options of `rekindle submit`, and `rekindle set`."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

import typer

from rekindle.cli.command import Cli
from rekindle.cli.errors import ExitCode, Trouble
from rekindle.cli.job_lookup import JOBS, JobArgument, job_id
from rekindle.cli.jobs import views

Json = dict[str, Any]
_PANEL = "How much, until when, where"
_UNITS = {"m": 60, "h": 3600, "d": 86_400}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)([mhd])")
_FORMS = ("%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d")
_NONE = "none"


class Exhausted(StrEnum):
    """What happens when the budget is used up."""

    PAUSE = "pause"
    CANCEL = "cancel"


class Risk(StrEnum):
    """What happens when Spot would miss the deadline."""

    SWITCH = "switch_to_on_demand"
    NOTIFY = "notify"
    CANCEL = "cancel"


class Priority(StrEnum):
    """Which of a project's own jobs go first."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits that `rekindle submit` and `rekindle set` both know; none unless given."""

    budget: Annotated[
        str | None,
        typer.Option(
            metavar="DOLLARS",
            help="Most that the job may cost, machines and storage; `none` lifts it.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    deadline: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN",
            help='Local time "2026-11-25 18:00", or 36h, 2d from now; `none` lifts it.',
            rich_help_panel=_PANEL,
        ),
    ] = None
    regions: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="Allowed regions; `none` for any.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="ENGINE",
            help="Machines of scale_set or azureml alone; `none` for either.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    priority: Annotated[
        Priority | None,
        typer.Option(
            help="Place in the queue of your project; default: normal.",
            rich_help_panel=_PANEL,
        ),
    ] = None

    def members(self, now: datetime) -> Json:
        """Members of the request's ``infrastructure``; null where a limit is lifted."""
        found: Json = {}
        if self.budget is not None:
            amount = _amount("--budget", self.budget)
            found["budget"] = amount and {"amount": amount}
        if self.deadline is not None:
            found["deadline"] = _moment(self.deadline, now)
        if self.regions is not None:
            names = [name.strip() for name in self.regions.split(",") if name.strip()]
            found["regions"] = None if self.regions == _NONE else names
        if self.engine is not None:
            found["engine"] = None if self.engine == _NONE else self.engine
        if self.priority:
            found["priority"] = str(self.priority)
        return found


@dataclass(frozen=True, kw_only=True)
class Changes(Limits):
    """Limits, and what happens at them: all that `rekindle set` knows."""

    on_exhausted: Annotated[
        Exhausted | None,
        typer.Option(
            "--on-exhausted",
            help="What to do at the budget, once a checkpoint is saved; default: pause.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    on_deadline_risk: Annotated[
        Risk | None,
        typer.Option(
            "--on-deadline-risk",
            help="What to do when Spot would be late; default: switch_to_on_demand.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    max_price: Annotated[
        str | None,
        typer.Option(
            "--max-price",
            metavar="DOLLARS",
            help="Most that an hour of one GPU may cost; `none` lifts it.",
            rich_help_panel=_PANEL,
        ),
    ] = None

    def members(self, now: datetime) -> Json:
        """The same, with what happens at the limits."""
        if self.on_exhausted and self.budget is None:
            raise _usage("--on-exhausted says nothing without --budget.", "Give both.")
        found = super().members(now)
        if self.on_exhausted and found["budget"]:
            found["budget"]["on_exhausted"] = str(self.on_exhausted)
        if self.on_deadline_risk:
            found["on_deadline_risk"] = str(self.on_deadline_risk)
        if self.max_price is not None:
            price = _amount("--max-price", self.max_price)
            found["max_price"] = price and {"per": "gpu_hour", "amount": price}
        return found


def set_terms(cli: Cli, job: JobArgument, *, limits: Changes) -> None:
    """Change budget, deadline, price, place or priority; a job that ran out of money goes on."""
    news = limits.members(datetime.now(UTC))
    if not news:
        raise _usage("Nothing to set.", "Give at least one option, such as --budget 200.")
    name = job_id(cli.client, job)
    shown = cli.client.patch(f"{JOBS}/{name}", {"infrastructure": news})
    cli.show(shown, lambda: _changed(shown))


def _changed(shown: Json) -> Iterable[Any]:
    yield views.heading(shown)
    yield views.facts(list(views.limits(shown)))
    yield views.next_steps(shown)


def _amount(option: str, text: str) -> Any:  # noqa: ANN401 - None lifts it
    """A decimal string; None to lift what holds now."""
    if text == _NONE:
        return None
    if not re.fullmatch(r"\d+(\.\d{1,6})?", text.removeprefix("$")):
        raise _usage(f"{option} {text!r} is no amount of dollars.", "Write it like 120 or 3.90.")
    return text.removeprefix("$")


def _moment(text: str, now: datetime) -> int | None:
    """Unix seconds of a date by this machine's clock, or of a span from now."""
    if text == _NONE:
        return None
    if span := _SPAN.fullmatch(text):
        seconds = float(span[1]) * _UNITS[span[2]]
        return int((now + timedelta(seconds=seconds)).timestamp())
    for form in _FORMS:
        try:
            return int(datetime.strptime(text, form).astimezone().timestamp())
        except ValueError:
            continue
    if text.isdecimal():
        return int(text)
    raise _usage(
        f"--deadline {text!r} is no time.",
        'Write it like "2026-11-25 18:00", or as a span from now: 36h, 2d.',
    )


def _usage(message: str, advice: str) -> Trouble:
    return Trouble(message, advice, exit_code=ExitCode.USAGE, code="bad_limit")
