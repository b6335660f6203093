"""On call: a job of another project, and everything stopped and taken up again."""

import asyncio
import os
import pty
import subprocess
import sys
from dataclasses import replace

from sqlalchemy import text

from tests.integration.cli.conftest import Shell
from tests.integration.cli.submit.test_submit import submit
from tests.world import World


async def other_project(shell: Shell) -> World:
    """Return the world as another project sees it, whose key opens no other project."""
    return replace(shell.world, key=await shell.world.other_key())


async def phases(world: World, *jobs: str) -> list[str]:
    return [(await world.job(job))["phase"] for job in jobs]


async def test_an_operator_looks_at_and_ends_a_job_of_another_project(shell: Shell) -> None:
    other_world = await other_project(shell)
    job = (await other_world.submit())["id"]
    options = ("--project", "others")

    not_found = await shell.run("events", job)
    projects_result = await shell.run("projects", "--job", job)
    event_output = await shell.run("events", job, *options)
    listing = await shell.run("list", "--json", *options)
    result = await shell.run("cancel", "last", *options)

    assert (not_found.code, event_output.code, result.code) == (5, 0, 0)
    assert "others" in projects_result.out
    assert "Created job" in event_output.out
    assert [j["id"] for j in listing.json["data"]] == [job]
    assert f"rekindle watch {job} --project others" in result.out
    assert await phases(other_world, job) == ["cancelling"]


async def test_the_jobs_of_all_projects_are_listed_by_project(shell: Shell) -> None:
    own_job, job = await submit(shell), (await (await other_project(shell)).submit())["id"]

    job_rows = (await shell.run("list", "--all-projects", "--json")).json["data"]
    table = await shell.run("list", "--all-projects", "-n", "1")
    conflicting = await shell.run("list", "--all-projects", "--project", "others")

    assert {(j["id"], j["project"]) for j in job_rows} == {(own_job, "tests"), (job, "others")}
    assert "Project others" in table.out
    assert conflicting.code == 2


async def test_all_that_is_not_over_is_paused_and_taken_up_again(shell: Shell) -> None:
    jobs = [await submit(shell) for _ in range(3)]
    other_job = (await (other_world := await other_project(shell)).submit())["id"]
    await shell.run("cancel", jobs[0])
    await shell.world.tick(2)

    paused = await shell.run("pause", "--all", "--yes")
    repeated = await shell.run("pause", "--all", "--yes", "--json")
    job_phases = await phases(shell.world, *jobs)
    resumed = await shell.run("resume", "--all", "--yes", "--json")

    assert (paused.code, repeated.code, resumed.code) == (0, 0, 0)
    assert paused.out.splitlines() == [
        f"{jobs[2]}: asked to pause",
        f"{jobs[1]}: asked to pause",
        "2 jobs asked to pause.",
    ]
    assert repeated.json["data"] == []
    assert job_phases[0] == "done"
    assert set(job_phases[1:]) <= {"pausing", "paused"}
    assert {row["id"] for row in resumed.json["data"]} == set(jobs[1:])
    assert {row["result"] for row in resumed.json["data"]} == {"requested"}
    assert not {"pausing", "paused"} & set(await phases(shell.world, *jobs))
    assert await phases(other_world, other_job) == ["provisioning"]


async def test_what_users_had_paused_stays_so_where_only_the_rest_is_taken_up(shell: Shell) -> None:
    users, other_job = await submit(shell), await submit(shell)
    await shell.run("pause", users)
    paused = await shell.run("pause", "--all", "--yes")
    kept_path, empty = shell.folder / "paused.txt", shell.folder / "empty.txt"
    kept_path.write_text(paused.out)
    empty.write_text("")

    no_costs = await shell.run("resume", "--all", "--only", str(empty))
    kept_result = await shell.run("resume", users, "--only", str(kept_path))
    resumed = await shell.run("resume", "--all", "--yes", "--only", str(kept_path), "--json")

    assert (no_costs.code, kept_result.code, resumed.code) == (2, 2, 0)
    assert [job["id"] for job in resumed.json["data"]] == [other_job]
    assert await phases(shell.world, users) == ["pausing"]


async def test_all_are_stopped_behind_a_thousand_that_are_over(shell: Shell) -> None:
    other_world, job = await other_project(shell), await submit(shell)
    statement = """
        insert into jobs select (jsonb_populate_record(j, jsonb_build_object(
            'id', 'ftjob-z' || n, 'state', 'cancelled', 'finished_at', j.created_at,
            'idempotency_key', null))).*
        from jobs j, generate_series(1, 1001) n
    """
    async with shell.world.engine.begin() as conn:
        await conn.execute(text(statement))
    other_job = (await other_world.submit())["id"]

    before = await phases(other_world, other_job)
    paused = await shell.run("pause", "--all", "--yes", "--all-projects", "--json")

    stopped = {(row["id"], row["project"]) for row in paused.json["data"]}
    assert stopped == {(other_job, "others"), (job, "tests")}
    assert before == ["validating"]
    assert set(await phases(other_world, other_job)) <= {"pausing", "paused"}


async def test_what_waits_for_money_is_paused_and_taken_up_only_if_it_was(shell: Shell) -> None:
    job = await submit(shell)
    async with shell.world.engine.begin() as conn:
        statement = (
            "update jobs set over_budget_at = created_at, over_budget_because = 'It is spent'"
        )
        await conn.execute(text(statement))

    unpaused = await shell.run("resume", "--all", "--yes", "--json")
    paused = await shell.run("pause", "--all", "--yes", "--json")
    resumed = await shell.run("resume", "--all", "--yes", "--json")

    assert unpaused.json["data"] == []
    assert [row["id"] for row in paused.json["data"] + resumed.json["data"]] == [job, job]


async def test_what_could_not_be_is_said_with_why_and_the_rest_is_done(shell: Shell) -> None:
    first, second = await submit(shell), await submit(shell)
    shell.switch.conflicts_for = f"{second}/pause"
    result = await shell.run("pause", "--all", "--yes")
    shell.switch.conflicts_for = ""
    await shell.run("pause", "--all", "--yes")
    shell.switch.conflicts_for = f"{second}/resume"

    resumed = await shell.run("resume", "--all", "--yes")
    repeated = await shell.run("resume", "--all", "--yes", "--json")

    assert result.code == 0, "a job that ends meanwhile is no failure"
    assert f"{second}: has already ended: not today" in result.out
    assert "1 job asked to pause; 1 had already ended." in result.out
    assert resumed.code == repeated.code == 1
    assert f"{second}: could not be asked to resume: not today" in resumed.out
    assert f"{first}: asked to resume" in resumed.out
    assert "1 job asked to resume; 1 failed." in resumed.out
    assert [row["result"] for row in repeated.json["data"]] == ["failed"]


async def test_a_service_that_goes_away_leaves_what_was_done(shell: Shell) -> None:
    first, second = await submit(shell), await submit(shell)
    shell.switch.away_for = f"{first}/pause"

    damaged = await shell.run("pause", "--all", "--yes")
    shell.switch.away_for = ""
    repeated = await shell.run("pause", "--all", "--yes", "--json")

    assert (damaged.code, repeated.code) == (3, 0)
    assert f"{second}: asked to pause" in damaged.out
    assert "rerun for the other jobs" in damaged.err
    assert [row["id"] for row in repeated.json["data"]] == [first]


async def at_a_terminal(shell: Shell, types: str, *arguments: str) -> tuple[int, str]:
    """How `rekindle` ended, and what it said on stderr, where stdin is a terminal."""
    keyboard, screen = pty.openpty()
    os.write(keyboard, f"{types}\n".encode())
    service = ("--url", shell.url, "--key", shell.key)
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "rekindle.cli.main", *arguments, *service),
        stdin=screen,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    _, stderr = await started.communicate()
    os.close(keyboard)
    os.close(screen)
    assert started.returncode is not None
    return started.returncode, stderr.decode()


async def test_who_sits_at_a_terminal_is_asked_first(shell: Shell) -> None:
    job = await submit(shell)

    unconfirmed = await shell.run("pause", "--all")
    result, prompt = await at_a_terminal(shell, "n", "pause", "--all")
    before = await phases(shell.world, job)
    agreed, _ = await at_a_terminal(shell, "y", "pause", "--all")
    unprompted, output = await at_a_terminal(shell, "n", "resume", "--all", "--yes")

    assert (unconfirmed.code, result, agreed, unprompted) == (2, 1, 0, 0)
    assert "--yes" in unconfirmed.err
    assert "Pause 1 job?" in prompt
    assert before == ["validating"]
    assert "Resume 1 job?" not in output
    assert not {"pausing", "paused"} & set(await phases(shell.world, job))
