"""The migrations and the tables in the code describe one schema."""

import asyncio
from datetime import UTC, datetime

import pytest
from alembic import command
from alembic.util import CommandError
from sqlalchemy import text, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from service.db import file_tables, files, jobs, metrics, storage_cost, tables
from service.db.metrics import Steps
from service.domain.row import Format
from tests import waiting
from tests.clock import Clock
from tests.integration.rows import add, add_job, blocked, transact
from tests.postgres import migrations
from tests.scripted_node import metrics as measured

JOBS = ("before", "beside")
FAR_AHEAD = datetime(2099, 1, 1, tzinfo=UTC)


def test_the_migrations_lead_to_the_tables_in_the_code(database_url: str) -> None:
    command.check(migrations(database_url))


def test_migrating_again_changes_nothing(database_url: str) -> None:
    command.upgrade(migrations(database_url), "head")
    command.check(migrations(database_url))


async def test_jobs_of_an_earlier_release_show_how_far_they_came(
    engine: AsyncEngine, database_url: str, clock: Clock
) -> None:
    async with engine.begin() as conn:
        await add_job(conn, clock(), id="over", state="cancelled", finished_at=clock())
        await add_job(conn, clock(), id="never", state="cancelled", finished_at=clock())
        await add_job(conn, clock(), id="trains", state="running")
        await add_job(conn, clock(), id="knows", state="running", progress={"step": 7})
        for job_id in ("over", "trains", "knows"):
            await metrics.add(conn, job_id, 1, [measured(step) for step in range(1, 6)])
        await metrics.add(conn, "over", 2, [measured(3), measured(4)])
        await conn.execute(update(tables.jobs).values(trained_tokens=None))
    await asyncio.to_thread(_again, database_url)

    async with engine.connect() as conn:
        found = {i: await jobs.find(conn, i) for i in ("over", "never", "trains", "knows")}
    shown = {i: (row.progress, row.trained_tokens) for i, row in found.items() if row}
    assert shown == {
        "over": ({"step": 4}, 500),
        "never": ({}, None),
        "trains": ({"step": 5}, None),
        "knows": ({"step": 7}, None),
    }


async def test_what_jobs_of_an_earlier_release_have_stored_is_metered_from_now_on(
    engine: AsyncEngine, database_url: str, clock: Clock
) -> None:
    async with engine.begin() as conn:
        await add_job(conn, clock(), id="prepared", run_spec_sha256="0")
        await add_job(conn, clock(), id="validating", state="validating")
    await asyncio.to_thread(_again, database_url, "0007")

    async with engine.begin() as conn:
        due = await storage_cost.claim_due(conn, FAR_AHEAD, 10)
    assert [claim.row_id for claim in due] == ["prepared"]


async def test_files_and_metrics_of_the_release_before_are_chats_without_a_margin(
    engine: AsyncEngine, database_url: str, clock: Clock
) -> None:
    async with engine.begin() as conn:
        await add_job(conn, clock(), id="before")
        await metrics.add(conn, "before", 1, [measured(1)])
    await asyncio.to_thread(_again, database_url, "0009")
    async with engine.begin() as conn:  # the release before, on this schema
        await add_job(conn, clock(), id="beside")
        row = {"job_id": "beside", "step": 1, "generation": 1, "loss": 1.0, "learning_rate": 1.0}
        row |= {"grad_norm": 1.0, "accuracy": 0.0, "tokens": 1, "seconds": 1.0}
        await add(conn, tables.metrics, **row)

    async with engine.connect() as conn:
        kept = [await files.find(conn, f"p-{i}", f"f-{i}") for i in JOBS]
        steps = [
            await metrics.series(conn, i, Steps(from_step=0, to_step=9), limit=9) for i in JOBS
        ]
    assert [file and file.format for file in kept] == [Format.CHAT, Format.CHAT]
    assert [row["margin"] for rows in steps for row in rows] == [None, None]


async def test_prompts_stay_when_the_release_before_them_is_taken_back(
    engine: AsyncEngine, database_url: str, clock: Clock
) -> None:
    members = {"answer": 0, "level": 7}
    async with engine.begin() as conn:
        await add_job(conn, clock(), id="before")
        await conn.execute(update(file_tables.files).values(format="prompt", members=members))
        await metrics.add(conn, "before", 1, [measured(1)])
    await asyncio.to_thread(_again, database_url, "0010")

    async with engine.connect() as conn:
        kept = await files.find(conn, "p-before", "f-before")
        (step,) = await metrics.series(conn, "before", Steps(from_step=0, to_step=9), limit=9)
    assert kept is not None
    assert (kept.format, kept.members) == (Format.PROMPT, {}), "what its rows have is lost"
    assert (step["reward"], step["kl"], step["grader_errors"]) == (None, None, 0)


async def test_a_file_is_of_a_format_that_there_is(engine: AsyncEngine, clock: Clock) -> None:
    async with engine.begin() as conn:
        await add_job(conn, clock())
    with pytest.raises(IntegrityError, match="files_format_check"):
        await transact(
            engine, lambda conn: conn.execute(update(file_tables.files).values(format="x"))
        )


async def test_each_migration_lets_go_of_its_locks_before_the_next_one(
    engine: AsyncEngine, database_url: str
) -> None:
    """Else whoever uses what the first one changes waits until the last one has its turn."""
    await asyncio.to_thread(command.downgrade, migrations(database_url), "0020")
    async with engine.connect() as conn, conn.begin():
        await conn.execute(text("lock table attempts in access share mode"))  # what 0022 changes
        upgrade = asyncio.create_task(
            asyncio.to_thread(command.upgrade, migrations(database_url), "head")
        )
        await waiting.until(lambda: blocked(engine), lambda many: many == 1)
        reached = (await conn.execute(text("select version_num from alembic_version"))).scalar_one()
    await upgrade

    assert reached == "0021"
    await asyncio.to_thread(command.check, migrations(database_url))


async def test_who_fails_to_migrate_lets_others_try(engine: AsyncEngine, database_url: str) -> None:
    with pytest.raises(CommandError):
        await asyncio.to_thread(command.upgrade, migrations(database_url), "no such release")

    async with engine.connect() as conn:
        free = await conn.execute(text("select pg_try_advisory_lock(7241)"))
        assert free.scalar_one() is True
        await conn.execute(text("select pg_advisory_unlock(7241)"))


async def test_who_migrates_waits_for_who_does_already(
    engine: AsyncEngine, database_url: str
) -> None:
    async with engine.connect() as conn:
        await conn.execute(text("select pg_advisory_lock(7241)"))
        upgrade = asyncio.create_task(
            asyncio.to_thread(command.upgrade, migrations(database_url), "head")
        )
        await waiting.until(lambda: blocked(engine), lambda many: many == 1)
        assert not upgrade.done()
        await conn.execute(text("select pg_advisory_unlock(7241)"))
        await upgrade


def _again(url: str, release: str = "0003") -> None:
    """Migrate from an earlier release."""
    command.downgrade(migrations(url), release)
    command.upgrade(migrations(url), "head")
