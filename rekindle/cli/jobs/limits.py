"""Limits of cost, time and region: options of `rekindle submit` and `rekindle set`."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from contract.choices import OnExhausted, OnRisk, Priority
from rekindle.cli.command import Cli
from rekindle.cli.errors import CliError, ExitCode
from rekindle.cli.job_lookup import JOBS, JobArgument, resolve_job_id
from rekindle.cli.jobs import views

Json = dict[str, Any]
_PANEL = "Budget, deadline and placement"
_UNITS = {"m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([mhd])")
_TIME_FORMATS = ("%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d")
_NONE = "none"


@dataclass(frozen=True, kw_only=True)
class LimitOptions:
    """Limits that both `rekindle submit` and `rekindle set` accept."""

    budget: Annotated[
        str | None,
        typer.Option(
            metavar="DOLLARS",
            help="Maximum cost of machines and storage in dollars; `none` removes it.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    deadline: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN",
            help='Local time "2026-11-25 18:00", or 36h or 2d from now; `none` removes it.',
            rich_help_panel=_PANEL,
        ),
    ] = None
    regions: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="Allowed regions, comma-separated; `none` allows all.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="ENGINE",
            help="Engine that runs the machines: scale_set or azureml; `none` allows both.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    priority: Annotated[
        Priority | None,
        typer.Option(
            help="Priority in the project's queue; default: normal.",
            rich_help_panel=_PANEL,
        ),
    ] = None

    def members(self, now: datetime) -> Json:
        """Return members of the request's ``infrastructure``; null removes a limit."""
        limits: Json = {}
        if self.budget is not None:
            amount = _parse_amount("--budget", self.budget)
            limits["budget"] = amount and {"amount": amount}
        if self.deadline is not None:
            limits["deadline"] = _parse_deadline(self.deadline, now)
        if self.regions is not None:
            names = [name.strip() for name in self.regions.split(",") if name.strip()]
            limits["regions"] = None if self.regions == _NONE else names
        if self.engine is not None:
            limits["engine"] = None if self.engine == _NONE else self.engine
        if self.priority:
            limits["priority"] = str(self.priority)
        return limits


@dataclass(frozen=True, kw_only=True)
class LimitChanges(LimitOptions):
    """Options of `rekindle set`: limits, and what to do when they are reached."""

    on_exhausted: Annotated[
        OnExhausted | None,
        typer.Option(
            "--on-exhausted",
            help="Action when the budget is exhausted, after a checkpoint; default: pause.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    on_deadline_risk: Annotated[
        OnRisk | None,
        typer.Option(
            "--on-deadline-risk",
            help="Action when Spot would miss the deadline; default: switch_to_on_demand.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    max_price: Annotated[
        str | None,
        typer.Option(
            "--max-price",
            metavar="DOLLARS",
            help="Maximum price of a GPU-hour in dollars; `none` removes it.",
            rich_help_panel=_PANEL,
        ),
    ] = None

    def members(self, now: datetime) -> Json:
        """Return the members, with the action at each limit; raise CliError if a limit lacks."""
        if self.on_exhausted and self.budget is None:
            raise _usage_error(
                "--on-exhausted has no effect without --budget.", "Pass both options."
            )
        limits = super().members(now)
        if self.on_exhausted and limits["budget"]:
            limits["budget"]["on_exhausted"] = str(self.on_exhausted)
        if self.on_deadline_risk:
            limits["on_deadline_risk"] = str(self.on_deadline_risk)
        if self.max_price is not None:
            price = _parse_amount("--max-price", self.max_price)
            limits["max_price"] = price and {"per": "gpu_hour", "amount": price}
        return limits


def set_limits(cli: Cli, job: JobArgument, *, limits: LimitChanges) -> None:
    """Change a job's budget, deadline, price, regions or priority; more budget resumes the job."""
    changes = limits.members(datetime.now(UTC))
    if not changes:
        raise _usage_error(
            "No change was requested.", "Pass at least one option, for example --budget 200."
        )
    name = resolve_job_id(cli.client, job)
    response = cli.client.patch(f"{JOBS}/{name}", {"infrastructure": changes})
    cli.print_result(response, lambda: _change_lines(response))


def _change_lines(job: Json) -> Iterable[Any]:
    yield views.job_heading(job)
    yield views.facts_table(list(views.limit_facts(job)))
    yield views.next_steps(job)


def _parse_amount(option: str, text: str) -> Any:  # noqa: ANN401 - None lifts it
    """Return the amount as a decimal string; None removes the limit."""
    if text == _NONE:
        return None
    if not re.fullmatch(r"\d+(\.\d{1,6})?", text.removeprefix("$")):
        raise _usage_error(
            f"{option} {text!r} is not an amount in dollars.", "Write it as 120 or 3.90."
        )
    return text.removeprefix("$")


def _parse_deadline(text: str, now: datetime) -> int | None:
    """Return Unix seconds of a local time or of a duration from now; None removes the deadline."""
    if text == _NONE:
        return None
    if span := _DURATION.fullmatch(text):
        seconds = float(span[1]) * _UNITS[span[2]]
        return int((now + timedelta(seconds=seconds)).timestamp())
    for form in _TIME_FORMATS:
        try:
            return int(datetime.strptime(text, form).astimezone().timestamp())
        except ValueError:
            continue
    if text.isdecimal():
        return int(text)
    raise _usage_error(
        f"--deadline {text!r} is not a time.",
        'Write it as "2026-11-25 18:00", or as a duration from now: 36h, 2d.',
    )


def _usage_error(message: str, advice: str) -> CliError:
    return CliError(message, advice, exit_code=ExitCode.USAGE, code="bad_limit")
