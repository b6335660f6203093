"""`rekindle tier`: where things lie, what moving them costs, and the move."""

import pytest

from tests.integration.cli.conftest import Shell
from tests.integration.stored_jobs import finish_job, list_tiers, make_moves


@pytest.fixture
async def job(shell: Shell) -> str:
    """Return the id of a finished job that has checkpoints and a model."""
    return await finish_job(shell.world)


async def carry_out(shell: Shell) -> None:
    while await make_moves(shell.world).run_once():
        pass


async def test_it_shows_what_lies_where_and_what_a_move_would_cost(shell: Shell, job: str) -> None:
    shown = await shell.run("tier", job)
    document = (await shell.run("tier", "last", "--json")).json
    dry = await shell.run("tier", job, "archive", "--dry-run")
    bill = await shell.run("cost", job)
    await carry_out(shell)

    assert (shown.code, dry.code) == (0, 0)
    assert [f["kind"] for f in document["folders"]] == ["checkpoint"] * 3 + ["model"]
    for word in ("checkpoint of step 6", "model", "hot", "online", "storage cost so far"):
        assert word in shown.out
    for word in ("early deletion", "per month", "to read all of it", "free to leave", "2026-11-20"):
        assert word in dry.out
    tiers = (await list_tiers(shell.world.store, job, "models/")).values()
    assert {b.tier for b in tiers} == {"hot"}, "a dry run moves nothing"
    assert "storage (included)" in bill.out


async def test_an_archived_model_says_how_to_get_it_back(shell: Shell, job: str) -> None:
    asked = await shell.run("tier", job, "archive", "--yes")
    await carry_out(shell)
    shown = await shell.run("tier", job)
    refused = await shell.run("download", job)
    back = await shell.run("tier", job, "hot", "--priority", "high", "--yes")
    await carry_out(shell)
    again = await shell.run("tier", job, "hot", "--yes")

    assert asked.code == 0
    assert "moves to archive" in asked.out
    assert "archived; rehydrates in 15 h 00 min for $0.0006, in 1 h 00 min for $0.0050" in shown.out
    assert refused.code == 1
    assert f"rekindle tier {job} hot" in refused.err
    assert "at the latest" in back.out
    assert "is already in hot" in again.out


async def test_a_checkpoint_is_named_by_its_step(shell: Shell, job: str) -> None:
    ended = await shell.run("tier", job, "cold", "--checkpoint", "4", "--yes", "--json")
    none = await shell.run("tier", job, "cold", "--checkpoint", "5", "--yes")

    assert (ended.code, ended.json["step_number"], ended.json["to"]) == (0, 4, "cold")
    assert none.code == 5
    assert "no checkpoint '5'" in none.err
