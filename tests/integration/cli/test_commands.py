"""Commands about jobs, keys and the machine: what comes back, and how a command ends."""

import asyncio
import re
from dataclasses import replace

import pytest
from sqlalchemy import text

from rekindle.cli.diagnostics import check_settings
from rekindle.cli.diagnostics.check import CheckResult, CheckStatus
from service.api.app import make_app
from service.db.core.schema_version import KnownMigrations
from tests import waiting
from tests.integration.cli.conftest import Shell
from tests.integration.cli.submit.test_submit import submit
from tests.served import served

_A_THOUSAND_MORE = text("""
insert into jobs
select (jsonb_populate_record(null::jobs,
  to_jsonb(j) || jsonb_build_object('id', j.id || n, 'idempotency_key', null))).*
from (select * from jobs order by id desc limit 1) j, generate_series(1000, 1999) n
""")


async def test_lists_page_and_filter_by_status(shell: Shell) -> None:
    names = [await submit(shell, "--name", str(n)) for n in range(3)]
    await shell.run("cancel", names[0])
    await shell.world.tick(2)

    first_page = (await shell.run("list", "-n", "2", "--json")).json
    next_page = (await shell.run("list", "--after", names[1], "--json")).json
    cancelled_page = (await shell.run("list", "--status", "cancelled", "--json")).json
    unknown = await shell.run("list", "--status", "happy")
    output = await shell.run("list", "-n", "2")

    assert [j["id"] for j in first_page["data"]] == [names[2], names[1]]
    assert (first_page["has_more"], next_page["has_more"]) == (True, False)
    assert [j["id"] for j in next_page["data"]] == [names[0]]
    assert [j["id"] for j in cancelled_page["data"]] == [names[0]]
    assert unknown.code == 2
    assert f"rekindle list --after {names[1]}" in output.out


async def test_a_list_of_one_status_says_where_it_has_stopped_to_look(shell: Shell) -> None:
    oldest = await submit(shell)
    await shell.run("cancel", oldest)
    await shell.world.tick(2)
    failed_list = await shell.run("list", "--status", "failed")
    await submit(shell)
    async with shell.world.engine.begin() as conn:
        await conn.execute(_A_THOUSAND_MORE)

    first_page = await shell.run("list", "--status", "cancelled")
    further = re.search(r"rekindle (list --status cancelled --after \S+)", first_page.out)
    assert further, first_page.out
    second_page = await shell.run(*further[1].split(), "--json")

    assert "No job is failed." in failed_list.out
    assert "No job of the newest 1,000 is cancelled." in first_page.out
    assert [job["id"] for job in second_page.json["data"]] == [oldest]
    assert second_page.json["has_more"] is False


async def test_a_job_is_named_by_its_id_the_beginning_of_it_or_last(shell: Shell) -> None:
    empty = await shell.run("show", "last")
    first, second = await submit(shell, "--name", "a"), await submit(shell, "--name", "b")
    common = first[: next(n for n, (a, b) in enumerate(zip(first, second, strict=True)) if a != b)]

    exact = await shell.run("show", first, "--json")
    last = await shell.run("show", "last", "--json")
    beginning = await shell.run("show", second[: len(common) + 1], "--json")
    by_prefix = await shell.run("show", first.removeprefix("ftjob-")[:-1], "--json")
    ambiguous = await shell.run("show", common)
    unknown = await shell.run("show", "ftjob-zzz")

    assert [e.json["id"] for e in (exact, last, beginning, by_prefix)] == [
        first,
        second,
        second,
        first,
    ]
    assert ambiguous.code == 2
    assert first in ambiguous.err
    assert second in ambiguous.err
    assert (unknown.code, empty.code) == (5, 5)
    assert "rekindle submit" in empty.err


async def test_a_request_is_granted_once_and_refused_where_it_makes_no_sense(shell: Shell) -> None:
    name = await submit(shell)

    first = await shell.run("cancel", name)
    await shell.world.tick(2)
    repeated = await shell.run("cancel", name)
    paused = await shell.run("pause", name)
    output = await shell.run("show", name)

    assert (first.code, repeated.code, paused.code) == (0, 0, 1)
    assert name in first.out
    assert f"{name} has already ended: cancelled." in repeated.out
    assert "cancelled" in paused.err
    assert "Cancelled" in output.out


async def test_a_service_that_is_away_is_tried_again_and_then_said_to_be_away(shell: Shell) -> None:
    shell.switch.is_away = True

    result = await shell.run("list")

    assert result.code == 3
    assert shell.switch.refused == 5


async def test_a_key_is_shown_once_and_worthless_once_revoked(shell: Shell) -> None:
    api_key = (await shell.run("keys", "create", "ci", "--json")).json
    with_it = await shell.run("list", "--key", api_key["key"])
    key_list = await shell.run("keys", "list")
    revoked = await shell.run("keys", "revoke", api_key["id"])
    after = await shell.run("list", "--key", api_key["key"])

    assert with_it.code == revoked.code == 0
    assert api_key["id"] in key_list.out
    assert api_key["key"] not in key_list.out
    assert after.code == 4


async def test_events_and_cost_are_there_for_people_and_programs(shell: Shell) -> None:
    name = await submit(shell)

    event_rows = (await shell.run("events", name, "--json")).json["data"]
    event_output = await shell.run("events", name)
    bill = (await shell.run("cost", name, "--json")).json
    output = await shell.run("cost", name)

    assert event_rows[0]["code"] == "job.created"
    assert event_rows[0]["message"] in event_output.out
    assert bill["object"] == "fine_tuning.job.cost"
    assert "forecast" in output.out


@pytest.mark.parametrize("command", ["submit", "watch", "break", "keys", "doctor"])
async def test_help_is_there_without_any_service(shell: Shell, command: str) -> None:
    result = await shell.run(command, "--help", REKINDLE_URL="")

    assert result.code == 0
    assert "Usage: " in result.out


async def test_doctor_knows_the_service_the_key_and_the_clock(shell: Shell) -> None:
    report = (await shell.run("doctor", "--json")).json
    with_wrong_key = await shell.run("doctor", "--json", "--key", "rk-wrong")
    output = await shell.run("doctor", "--key", "rk-wrong")
    shell.switch.is_away = True
    unreachable = (await shell.run("doctor", "--json")).json

    def verdicts(document: dict[str, list[dict[str, str]]]) -> dict[str, str]:
        return {c["name"]: c["verdict"] for c in document["checks"] if c["topic"] == "service"}

    assert verdicts(report) == {"service": "ok", "clock": "ok", "API key": "ok"}
    assert verdicts(with_wrong_key.json)["API key"] == "missing"
    assert with_wrong_key.code == output.code == 1
    assert "missing" in output.out
    assert verdicts(unreachable) == {"service": "missing"}


async def test_what_can_be_broken_on_purpose_is_listed(shell: Shell) -> None:
    break_list = await shell.run("break", "--json")

    assert {"service", "vm", "capacity"} <= {b["what"] for b in break_list.json["data"]}


async def test_an_upload_that_the_service_could_not_take_is_sent_again(shell: Shell) -> None:
    shell.switch.is_away = True

    upload_task = asyncio.create_task(shell.run("files", "upload", shell.dataset()))
    await waiting.until(lambda: _value(shell.switch.refused), lambda n: n >= 1)
    shell.switch.is_away = False
    result = await upload_task

    assert result.code == 0
    assert "Retrying the upload." in result.err
    assert len((await shell.run("files", "list", "--json")).json["data"]) == 1


async def _value(value: int) -> int:
    return value


def settings_checks_of(**settings: str) -> dict[str, CheckResult]:
    """Return the results of the settings checks for these settings of the service, by name."""
    return {check.name: check for check in check_settings.settings_checks(settings)}


async def test_a_service_that_is_not_ready_is_shown_with_its_own_reason(shell: Shell) -> None:
    async with shell.world.engine.connect() as conn:
        schema_version = (
            await conn.exec_driver_sql("select version_num from alembic_version")
        ).scalar_one()
    schema = KnownMigrations(newest="9999", known=frozenset({str(schema_version), "9999"}))

    async with served(make_app(replace(shell.world.parts, schema=schema))) as url:
        result = await shell.run("doctor", "--json", REKINDLE_URL=f"{url}/v1")

    checks_by_name = {c["name"]: c for c in result.json["checks"] if c["topic"] == "service"}
    assert result.code == 1
    assert (
        "this release needs 9999: run `python -m service.main migrate`"
        in (checks_by_name["service"]["found"])
    )
    assert "Start it" not in checks_by_name["service"]["remedy"]
    assert checks_by_name["clock"]["verdict"] == "ok"
    assert "API key" not in checks_by_name


async def test_wrong_settings_are_not_called_missing(shell: Shell) -> None:
    result = await shell.run(
        "doctor",
        "--json",
        REKINDLE_SECRET_KEY="short",
        REKINDLE_DATABASE_URL="postgresql://rekindle@127.0.0.1:1/rekindle",
        REKINDLE_STORAGE="nonsense",
    )

    checks_by_name = {c["name"]: c for c in result.json["checks"] if c["topic"] == "azure"}
    assert result.code == 1
    assert checks_by_name["REKINDLE_SECRET_KEY"]["remedy"] == "Set it: 32 characters or more."
    assert "Connection refused" in checks_by_name["database"]["found"]
    assert checks_by_name["storage"]["verdict"] == "missing"
    assert "settings" not in checks_by_name


def test_settings_are_judged_where_the_service_runs_and_can_be_asked() -> None:
    damaged = settings_checks_of(REKINDLE_DEPLOYMENT="test", PYTHONHOME="/nowhere")

    assert settings_checks_of() == {}
    assert damaged["settings"].verdict is CheckStatus.DOUBT
    assert "python -m service.main check" in damaged["settings"].remedy
