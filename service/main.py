"""Composition root: `python -m service.main COMMAND`, see `service/console.py`."""

import argparse
import asyncio
import json
import os
import sys
import time
from datetime import UTC, datetime

from pydantic import ValidationError
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from contract.printable import printable, printable_lines
from service import check, console, migration, telemetry
from service.db.core.engine import make_engine
from service.domain.errors import ServiceError
from service.domain.queue.admission import ProjectQuota
from service.settings import DatabaseSettings, Settings


def main() -> int:
    """Read the arguments and the environment, then run."""
    options = parse_arguments()
    telemetry.set_up()
    if options.command == "check":
        return asyncio.run(_check(options))
    try:
        return _run(options)
    except ValidationError as error:
        sys.stderr.writelines(f"{name}: {fault}\n" for name, fault in check.faults(error))
        return 2


def _run(options: argparse.Namespace) -> int:
    """Run with the settings that the command needs, from the environment; raise ValidationError."""
    if options.command in ("migrate", *console.COMMANDS):
        return _run_on_database(DatabaseSettings(), options)  # type: ignore[call-arg]  # the same
    settings = Settings()  # type: ignore[call-arg]  # the environment fills it
    from service import serving  # noqa: PLC0415 - takes seconds, and only these commands need it

    if telemetry.is_export_enabled(os.environ):
        telemetry.export_traces()
    serving.run(settings, options, now)
    return 0


def _run_on_database(settings: DatabaseSettings, options: argparse.Namespace) -> int:
    """Run a command that needs only the database."""
    url = settings.database_url.get_secret_value()
    try:
        engine = make_engine(url)
    except check.NO_ADDRESS as error:
        return _report_database_fault(error)
    try:
        if options.command != "migrate":
            return asyncio.run(_console(engine, settings.default_quota, options))
        migration.migrate(url)
    except SQLAlchemyError as error:
        return _report_database_fault(error)
    except migration.UnknownSchema as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def now() -> datetime:
    """Return the time: the only clock of the service."""
    return datetime.now(UTC)


def _report_database_fault(error: Exception) -> int:
    """Print why the database cannot be used, and what to do."""
    fault = check.database_fault(error)
    sys.stderr.write(f"{fault.found}\n{fault.remedy}\n")
    return 1


async def _console(
    engine: AsyncEngine, default_quota: ProjectQuota, options: argparse.Namespace
) -> int:
    """Run an operator command and print its lines."""
    try:
        lines = await console.run_command(engine, options, now(), default_quota)
    except ServiceError as error:
        sys.stderr.write(f"{printable(error.message)}\n")
        return 1
    finally:
        await engine.dispose()
    sys.stdout.write("".join(f"{printable(line)}\n" for line in lines))
    return 0


async def _check(options: argparse.Namespace) -> int:
    """Check the set-up and print the result of each part."""
    parts = [part async for part in check.run_checks(migration.schema(), time.time)]
    if options.json:
        sys.stdout.write(json.dumps([part.as_dict() for part in parts]) + "\n")
    else:
        sys.stdout.write(printable_lines("".join(f"{part}\n" for part in parts)))
    return 1 if any(part.remedy for part in parts) else 0


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    return console.parse_arguments(__doc__)


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main())
