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

    newest = (await shell.run("list", "-n", "2", "--json")).json
    rest = (await shell.run("list", "--after", names[1], "--json")).json
    ended = (await shell.run("list", "--status", "cancelled", "--json")).json
    unknown = await shell.run("list", "--status", "happy")
    shown = await shell.run("list", "-n", "2")

    assert [j["id"] for j in newest["data"]] == [names[2], names[1]]
    assert (newest["has_more"], rest["has_more"]) == (True, False)
    assert [j["id"] for j in rest["data"]] == [names[0]]
    assert [j["id"] for j in ended["data"]] == [names[0]]
    assert unknown.code == 2
    assert f"rekindle list --after {names[1]}" in shown.out


async def test_a_list_of_one_status_says_where_it_has_stopped_to_look(shell: Shell) -> None:
    oldest = await submit(shell)
    await shell.run("cancel", oldest)
    await shell.world.tick(2)
    nobody = await shell.run("list", "--status", "failed")
    await submit(shell)
    async with shell.world.engine.begin() as conn:
        await conn.execute(_A_THOUSAND_MORE)

    seen = await shell.run("list", "--status", "cancelled")
    further = re.search(r"rekindle (list --status cancelled --after \S+)", seen.out)
    assert further, seen.out
    rest = await shell.run(*further[1].split(), "--json")

    assert "No job is failed." in nobody.out
    assert "No job of the newest 1,000 is cancelled." in seen.out
    assert [job["id"] for job in rest.json["data"]] == [oldest]
    assert rest.json["has_more"] is False


async def test_a_job_is_named_by_its_id_the_beginning_of_it_or_last(shell: Shell) -> None:
    none = await shell.run("show", "last")
    first, second = await submit(shell, "--name", "a"), await submit(shell, "--name", "b")
    common = first[: next(n for n, (a, b) in enumerate(zip(first, second, strict=True)) if a != b)]

    whole = await shell.run("show", first, "--json")
    last = await shell.run("show", "last", "--json")
    beginning = await shell.run("show", second[: len(common) + 1], "--json")
    bare = await shell.run("show", first.removeprefix("ftjob-")[:-1], "--json")
    both = await shell.run("show", common)
    nobody = await shell.run("show", "ftjob-zzz")

    assert [e.json["id"] for e in (whole, last, beginning, bare)] == [first, second, second, first]
    assert both.code == 2
    assert first in both.err
    assert second in both.err
    assert (nobody.code, none.code) == (5, 5)
    assert "rekindle submit" in none.err


async def test_a_request_is_granted_once_and_refused_where_it_makes_no_sense(shell: Shell) -> None:
    name = await submit(shell)

    first = await shell.run("cancel", name)
    await shell.world.tick(2)
    again = await shell.run("cancel", name)
    paused = await shell.run("pause", name)
    shown = await shell.run("show", name)

    assert (first.code, again.code, paused.code) == (0, 0, 1)
    assert name in first.out
    assert f"{name} has already ended: cancelled." in again.out
    assert "cancelled" in paused.err
    assert "Cancelled" in shown.out


async def test_a_service_that_is_away_is_tried_again_and_then_said_to_be_away(shell: Shell) -> None:
    shell.switch.is_away = True

    ended = await shell.run("list")

    assert ended.code == 3
    assert shell.switch.refused == 5


async def test_a_key_is_shown_once_and_worthless_once_revoked(shell: Shell) -> None:
    made = (await shell.run("keys", "create", "ci", "--json")).json
    with_it = await shell.run("list", "--key", made["key"])
    listed = await shell.run("keys", "list")
    gone = await shell.run("keys", "revoke", made["id"])
    after = await shell.run("list", "--key", made["key"])

    assert with_it.code == gone.code == 0
    assert made["id"] in listed.out
    assert made["key"] not in listed.out
    assert after.code == 4


async def test_events_and_cost_are_there_for_people_and_programs(shell: Shell) -> None:
    name = await submit(shell)

    told = (await shell.run("events", name, "--json")).json["data"]
    read = await shell.run("events", name)
    bill = (await shell.run("cost", name, "--json")).json
    shown = await shell.run("cost", name)

    assert told[0]["code"] == "job.created"
    assert told[0]["message"] in read.out
    assert bill["object"] == "fine_tuning.job.cost"
    assert "forecast" in shown.out


@pytest.mark.parametrize("command", ["submit", "watch", "break", "keys", "doctor"])
async def test_help_is_there_without_any_service(shell: Shell, command: str) -> None:
    ended = await shell.run(command, "--help", REKINDLE_URL="")

    assert ended.code == 0
    assert "Usage: " in ended.out


async def test_doctor_knows_the_service_the_key_and_the_clock(shell: Shell) -> None:
    good = (await shell.run("doctor", "--json")).json
    wrong = await shell.run("doctor", "--json", "--key", "rk-wrong")
    shown = await shell.run("doctor", "--key", "rk-wrong")
    shell.switch.is_away = True
    away = (await shell.run("doctor", "--json")).json

    def verdicts(document: dict[str, list[dict[str, str]]]) -> dict[str, str]:
        return {c["name"]: c["verdict"] for c in document["checks"] if c["topic"] == "service"}

    assert verdicts(good) == {"service": "ok", "clock": "ok", "API key": "ok"}
    assert verdicts(wrong.json)["API key"] == "missing"
    assert wrong.code == shown.code == 1
    assert "missing" in shown.out
    assert verdicts(away) == {"service": "missing"}


async def test_what_can_be_broken_on_purpose_is_listed(shell: Shell) -> None:
    listed = await shell.run("break", "--json")

    assert {"service", "vm", "capacity"} <= {b["what"] for b in listed.json["data"]}


async def test_an_upload_that_the_service_could_not_take_is_sent_again(shell: Shell) -> None:
    shell.switch.is_away = True

    sending = asyncio.create_task(shell.run("files", "upload", shell.dataset()))
    await waiting.until(lambda: _value(shell.switch.refused), lambda n: n >= 1)
    shell.switch.is_away = False
    ended = await sending

    assert ended.code == 0
    assert "Retrying the upload." in ended.err
    assert len((await shell.run("files", "list", "--json")).json["data"]) == 1


async def _value(seen: int) -> int:
    return seen


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


async def test_wrong_settings_are_not_called_missing(shell: Shell) -> None:
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


def test_settings_are_judged_where_the_service_runs_and_can_be_asked() -> None:
    broken = told(REKINDLE_DEPLOYMENT="test", PYTHONHOME="/nowhere")

    assert told() == {}
    assert broken["settings"].verdict is CheckStatus.DOUBT
    assert "python -m service.main check" in broken["settings"].remedy
