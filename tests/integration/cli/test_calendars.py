"""`rekindle simulate JOB --calendar`, on what was seen here and on traces that are brought."""

import json

from sqlalchemy import update

from service.db.tables import attempts, ledger
from tests.integration.cli.conftest import Shell
from tests.integration.cli.test_submit import submit
from tests.integration.cli.test_traces import live
from tests.world import World


async def now_of(world: World, job: str) -> None:
    """All attempts that there are become this job's."""
    async with world.engine.begin() as conn:
        for table in (attempts, ledger):
            await conn.execute(update(table).values(job_id=job))


async def test_a_calendar_of_our_own_record_says_how_little_was_seen(shell: Shell) -> None:
    name = await submit(shell)

    await live(shell.world)
    await now_of(shell.world, name)
    told = (await shell.run("simulate", name, "--calendar", "--weeks", "1", "--json")).json

    assert (told["object"], told["job"], told["enough"]) == ("capacity_calendar", name, False)
    assert "% of the record was seen" in told["doubt"]
    assert told["whole"]["unfinished_percent"] < 100


async def test_a_newcomers_calendar_has_prices_alone_and_says_that_capacity_is_assumed(
    shell: Shell,
) -> None:
    name = await submit(shell)

    await live(shell.world)  # what other projects saw is theirs
    shown = await shell.run("simulate", name, "--calendar")
    told = (await shell.run("simulate", name, "--calendar", "--json")).json

    assert shown.code == 0, shown.err
    assert "0 % of the capacity seen" in shown.out
    assert "No capacity is recorded yet" in shown.out
    assert "--traces DIR" in shown.out
    assert (told["enough"], told["whole"]["unfinished_percent"]) == (False, 0)


async def test_a_body_of_any_size_is_read_up_to_a_limit(shell: Shell) -> None:
    path = f"/v1/fine_tuning/jobs/{await submit(shell)}/calendar"
    calls = shell.world

    long = await calls.call("POST", path, content=b" " * (8 * 1024 * 1024 + 1))
    odd = await calls.call("POST", path, json={"weeks": 99})
    endless = {"metadata": {"gap_seconds": 1e9, "start_time": "2026-11-02"}, "data": [1] * 9}
    held = await calls.call("POST", path, json={"traces": {"a": endless}})

    assert [a.status_code for a in (long, odd, held)] == [413, 400, 400]
    assert "gap_seconds is 1 to 3600" in held.json()["error"]["message"]


async def test_a_calendar_is_asked_for_once(shell: Shell) -> None:
    name = await submit(shell)
    shell.switch.away_for = "/calendar"

    ended = await shell.run("simulate", name, "--calendar")

    assert ended.code != 0
    assert shell.switch.refused == 1


async def test_traces_that_are_brought_take_the_place_of_our_own(shell: Shell) -> None:
    name = await submit(shell)
    folder = shell.folder / "brought"
    folder.mkdir()
    metadata = {"gap_seconds": 3600, "start_time": "2026-11-02T00:00:00"}
    trace = {"metadata": metadata, "data": [8] * 24 * 10}
    (folder / "us-east-1a.json").write_text(json.dumps(trace))

    shown = await shell.run("simulate", name, "--calendar", "--traces", str(folder))
    (folder / "bad.json").write_text('{"data": [1]}')
    bad = await shell.run("simulate", name, "--calendar", "--traces", str(folder))
    nowhere = await shell.run("simulate", name, "--calendar", "--traces", "nowhere")
    alone = await shell.run("simulate", name, "--traces", str(folder))

    assert shown.code == 0, shown.err
    assert "us-east-1a" in shown.out
    assert "100 % of the capacity seen" in shown.out
    assert "makes no difference" in shown.out
    assert [e.code for e in (bad, nowhere, alone)] == [2, 2, 2]
    assert "bad: A trace is" in bad.err
    assert "rekindle traces export" in nowhere.err
