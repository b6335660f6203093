"""Run operator commands for API keys, budgets and quotas of projects; return lines to print."""

import argparse
import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import partial

from sqlalchemy.ext.asyncio import AsyncEngine

from contract.choices import Scope
from service.domain.queue.admission import ProjectQuota
from service.operations.money import budgets
from service.operations.projects import keys, quotas, sign_in
from service.operations.queue import admission

_KEY_ACTIONS = (
    ("create", "create a key and print it, once"),
    ("list", "print a project's keys: id, hint, scope, made when and by whom, expiry, last use"),
    ("revoke", "revoke a key"),
)
_ANY = -1  # parsed value of `none`
_MAX_COUNT = 2**31 - 1  # largest value of a column
_MAX_BYTES = 2**60
_LIMITS = ("live_jobs", "files", "bytes", "keys")
_MIN_DOLLARS, _MAX_DOLLARS = Decimal("0.01"), Decimal(99_999_999)  # as stored
_MAX_DAYS = 3650
_MAX_WEIGHT = 1e6
COMMANDS = ("key", "budget", "quota", "sign-in")


def parse_arguments(
    description: str | None, arguments: Sequence[str] | None = None
) -> argparse.Namespace:
    """Parse the service's command line: its processes, and the commands of this module.

    ``arguments`` replace the arguments of the process.
    """
    parser = argparse.ArgumentParser(prog="python -m service.main", description=description)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("api", "reconciler", "all"):
        face = commands.add_parser(name)
        face.add_argument("--host", default="127.0.0.1")
        if name == "reconciler":
            face.add_argument("--port", type=int, help="for /livez and /readyz; none without it")
        else:
            face.add_argument("--port", type=int, default=8080)
    commands.add_parser("migrate", help="bring the database schema up to date")
    check = commands.add_parser("check", help="check settings, database, storage and trackers")
    check.add_argument("--json", action="store_true", help="for programs")
    _add_commands(commands)
    return parser.parse_args(arguments)


def _add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the parsers of these commands."""
    key = commands.add_parser("key", help="API keys")
    actions = key.add_subparsers(dest="action", required=True)
    for action, help_text in _KEY_ACTIONS:
        action_parser = actions.add_parser(action, help=help_text)
        action_parser.add_argument("--project", default="default")
        if action == "create":
            action_parser.add_argument("--name", default="default")
            action_parser.add_argument(
                "--scope", choices=list(Scope), type=Scope, default=Scope.WRITE
            )
            action_parser.add_argument(
                "--days", type=_days, help="until it expires; default: never"
            )
        if action == "revoke":
            action_parser.add_argument("id", help="as `key list` prints it")
    link = commands.add_parser("sign-in", help="print a one-time token for the web console")
    link.add_argument("--project", default="default")
    link.add_argument("--scope", choices=list(Scope), type=Scope, default=Scope.WRITE)
    link.add_argument("--minutes", type=int, choices=range(1, 61), default=10, metavar="N")
    budget = commands.add_parser("budget", help="show or set the budget of a project")
    budget.add_argument("--project", default="default")
    budget.add_argument("--set", metavar="DOLLARS", type=_amount, help="new budget")
    budget.add_argument(
        "--since", metavar="DATE", type=_date, help="first day that counts (UTC); default: now"
    )
    budget.add_argument("--lift", action="store_true", help="remove the budget")
    quota = commands.add_parser("quota", help="show or set the quota and limits of a project")
    quota.add_argument("--project", default="default")
    for limit in ("jobs", "gpus"):
        quota.add_argument(f"--max-{limit}", metavar="N", type=_parse_limit, help="or `none`")
    for limit in _LIMITS:
        name, kind = limit.replace("_", "-"), partial(_parse_limit, most=_MAX_BYTES)
        limit_help = "limit of the project; `none`: the default"
        quota.add_argument(f"--max-{name}", metavar="N", type=kind, help=limit_help)
    weight = "share of machines under contention; default: 1"
    quota.add_argument("--weight", metavar="W", type=_weight, help=weight)


async def run_command(
    engine: AsyncEngine, options: argparse.Namespace, now: datetime, default_quota: ProjectQuota
) -> list[str]:
    """Run the command; return the lines to print. ``default_quota``: of a project."""
    if options.command == "quota":
        return await _quota(engine, options, default_quota)
    if options.command == "budget":
        return await _budget(engine, options, now)
    async with engine.begin() as conn:
        if options.command == "sign-in":
            lifetime = timedelta(minutes=options.minutes)
            return [await sign_in.create_token(conn, options.project, options.scope, now, lifetime)]
        if options.action == "create":
            until = None if options.days is None else now + timedelta(days=options.days)
            created = keys.create(
                conn, options.project, options.name, now, scope=options.scope, expires_at=until
            )
            return [await created]
        project_id = await keys.find_project_id(conn, options.project)
        if options.action == "list":
            return [keys.describe_key(key) for key in await keys.list_keys(conn, project_id)]
        key, remaining = await keys.revoke(conn, project_id, options.id, now)
        return [f"{key.id} is revoked; project {options.project} has {remaining} keys left."]


async def _budget(engine: AsyncEngine, options: argparse.Namespace, now: datetime) -> list[str]:
    """Set or show a budget; jobs that stopped for lack of money are checked again, one by one."""
    if options.set is not None or options.lift:
        async with engine.begin() as conn:
            cap = None if options.lift else options.set
            stopped = await budgets.set_project(conn, options.project, cap, now, options.since)
        for job_id in stopped:
            async with engine.begin() as conn:
                await budgets.clear_exhaustion(conn, job_id, now)
    async with engine.connect() as conn:
        return [await budgets.describe_budget(conn, options.project, now)]


async def _quota(
    engine: AsyncEngine, options: argparse.Namespace, default_quota: ProjectQuota
) -> list[str]:
    values = {n: getattr(options, n) for n in ("max_jobs", "max_gpus", "weight")}
    changes = {n: None if v == _ANY else v for n, v in values.items() if v is not None}
    most = {n: getattr(options, f"max_{n}") for n in _LIMITS}
    limits = {n: None if v == _ANY else v for n, v in most.items() if v is not None}
    async with engine.begin() as conn:
        if changes:
            await admission.set_quota(conn, options.project, changes, default_quota)
        if limits:
            await quotas.set_limits(conn, options.project, limits)
        jobs = await admission.describe_quota(conn, options.project, default_quota)
        return [jobs, await quotas.describe_limits(conn, options.project)]


def _parse_limit(text: str, most: int = _MAX_COUNT) -> int:
    if text == "none":
        return _ANY
    if not text.isdecimal() or len(text) > len(str(most)) or int(text) > most:
        raise argparse.ArgumentTypeError(f"{text!r} is no number up to {most}: write one, or none")
    return int(text)


def _days(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text[:9]) <= _MAX_DAYS:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of days from 1 to {_MAX_DAYS}")
    return int(text)


def _weight(text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not 1 / _MAX_WEIGHT <= weight <= _MAX_WEIGHT:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no weight: write a number above 0 and up to {_MAX_WEIGHT:.0f}"
        )
    return weight


def _amount(text: str) -> Decimal:
    try:
        amount = Decimal(text.removeprefix("$"))
    except InvalidOperation:
        amount = Decimal("NaN")
    if amount.is_finite() and (amount <= 0 or _MIN_DOLLARS <= amount <= _MAX_DOLLARS):
        return amount  # a value that is no amount has its own error message
    raise argparse.ArgumentTypeError(
        f"{text!r} is no amount of dollars from {_MIN_DOLLARS} to {_MAX_DOLLARS}"
    )


def _date(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text!r} is no date like 2026-11-01") from None
