"""`rekindle doctor` beside a service that cannot work, and with the settings of one."""

from dataclasses import replace

from rekindle.cli.diagnostics import check_settings
from rekindle.cli.diagnostics.check import CheckResult, CheckStatus
from service.api.app import make_app
from service.db.core.schema_version import KnownMigrations
from tests.integration.cli.conftest import Shell
from tests.served import served


def told(**settings: str) -> dict[str, CheckResult]:
    """Return the results of the settings checks for these settings of the service, by name."""
    return {check.name: check for check in check_settings.settings_checks(settings)}


async def test_a_service_that_is_not_ready_is_shown_with_its_own_reason(shell: Shell) -> None:
    async with shell.world.engine.connect() as conn:
        there = (await conn.exec_driver_sql("select version_num from alembic_version")).scalar_one()
    schema = KnownMigrations(newest="9999", known=frozenset({str(there), "9999"}))

    async with served(make_app(replace(shell.world.parts, schema=schema))) as url:
        ended = await shell.run("doctor", "--json", REKINDLE_URL=f"{url}/v1")

    found = {c["name"]: c for c in ended.json["checks"] if c["topic"] == "service"}
    assert ended.code == 1
    assert (
        "this release needs 9999: run `python -m service.main migrate`"
        in (found["service"]["found"])
    )
    assert "Start it" not in found["service"]["remedy"]
    assert found["clock"]["verdict"] == "ok"
    assert "API key" not in found


async def test_settings_that_are_there_and_wrong_are_no_settings_that_are_needed(
    shell: Shell,
) -> None:
    ended = await shell.run(
        "doctor",
        "--json",
        REKINDLE_SECRET_KEY="short",
        REKINDLE_DATABASE_URL="postgresql://rekindle@127.0.0.1:1/rekindle",
        REKINDLE_STORAGE="nonsense",
    )

    found = {c["name"]: c for c in ended.json["checks"] if c["topic"] == "azure"}
    assert ended.code == 1
    assert found["REKINDLE_SECRET_KEY"]["remedy"] == "Set it: 32 characters or more."
    assert "Connection refused" in found["database"]["found"]
    assert found["storage"]["verdict"] == "missing"
    assert "settings" not in found


def test_nothing_is_said_of_settings_where_the_service_does_not_run() -> None:
    assert told() == {}


def test_a_service_that_cannot_even_be_asked_is_a_doubt_with_the_command() -> None:
    broken = told(REKINDLE_DEPLOYMENT="test", PYTHONHOME="/nowhere")

    assert broken["settings"].verdict is CheckStatus.DOUBT
    assert "python -m service.main check" in broken["settings"].remedy
