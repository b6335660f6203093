"""Checkpoints and models on their way to other tiers, and back from the archive."""

from dataclasses import dataclass, replace
from typing import Any

import httpx
from sqlalchemy import update

from service.db.schema import tables
from service.domain.storage.access_tiers import AccessTier, ArchivePriority
from service.storage.fake import MemoryStore
from service.storage.store import StorageError
from tests.integration.stored_jobs import (
    STEPS,
    finish_job,
    list_tiers,
    make_moves,
    put_files,
    start_with_checkpoints,
)
from tests.nodes.scripted_node import body, committed, say_all
from tests.world import World
from trainer.contract import HEAD, Head, NodePhase

JOBS = "/v1/fine_tuning/jobs"


async def request_move(
    world: World,
    job: str,
    path: str = "model",
    **fields: Any,  # noqa: ANN401 - JSON
) -> httpx.Response:
    return await world.call("POST", f"{JOBS}/{job}/{path}/tier", json=fields)


async def read_storage(world: World, job: str) -> dict[str, Any]:
    return body(await world.call("GET", f"{JOBS}/{job}/storage"))


async def folder(world: World, job: str, kind: str = "model") -> dict[str, Any]:
    folder_view: dict[str, Any] = next(
        f for f in (await read_storage(world, job))["folders"] if f["kind"] == kind
    )
    return folder_view


async def carry_out(world: World) -> None:
    while await make_moves(world).run_once():
        pass


async def codes(world: World, job: str) -> list[str]:
    return [code for code in await world.event_codes(job) if code.startswith("storage.")]


async def test_a_dry_run_shows_the_cost_of_a_move(world: World) -> None:
    job = await finish_job(world)

    preview = body(await request_move(world, job, tier="archive", dry_run=True))

    assert preview["cost"]["early_deletion"] == "0.0000"
    assert preview["cost"]["once"] == "0.0000"  # a write: eleven millionths of a dollar
    assert preview["moves"] == {"blobs": 1, "bytes": 200 * 1024}
    assert preview["cost"]["free_to_leave_at"] == int(world.clock().timestamp()) + 180 * 86_400
    assert (preview["id"], preview["dry_run"], preview["tier"], preview["state"]) == (
        None,
        True,
        "hot",
        "online",
    )
    assert preview["prices"]["source"] == "Microsoft's sample prices"
    assert preview["prices"]["as_of"] == "2026-11-20"
    assert await codes(world, job) == []
    assert await make_moves(world).run_once() == 0


async def test_a_model_is_archived_and_its_manifest_and_small_files_stay_hot(world: World) -> None:
    job = await finish_job(world)

    move = body(await request_move(world, job, tier="archive"))
    under_way = await folder(world, job)
    await carry_out(world)

    tiers = await list_tiers(world.store, job, "models/")
    assert {name: blob.tier for name, blob in tiers.items()} == {
        "model.safetensors": AccessTier.ARCHIVE,
        "config.json": AccessTier.HOT,
        "manifest.json": AccessTier.HOT,
    }
    assert move["id"].startswith("tier-")
    assert under_way["moving_to"] == "archive"
    folder_view = await folder(world, job)
    assert (folder_view["tier"], folder_view["state"], folder_view["moving_to"]) == (
        "archive",
        "archived",
        None,
    )
    assert await codes(world, job) == ["storage.tier_asked", "storage.tier_changed"]

    response = await world.call("GET", f"{JOBS}/{job}/model")
    small_file = await world.call("GET", f"{JOBS}/{job}/model/config.json")
    refusal = await world.call("GET", f"{JOBS}/{job}/model/model.safetensors")
    error = body(refusal)["error"]
    assert (response.status_code, small_file.status_code, refusal.status_code) == (200, 200, 409)
    assert (error["code"], refusal.headers["x-should-retry"]) == ("archived", "false")
    assert f"rekindle tier {job} hot" in error["message"]
    assert f'POST {JOBS}/{job}/model/tier {{"tier": "hot"}}' in error["message"]
    assert "up to 15 h and costs $0.0006" in error["message"]
    assert "about 1 h and $0.0050" in error["message"]
    ways = folder_view["rehydrate"]
    assert ways["standard"] == {"cost": "0.0006", "seconds_at_most": 54_000}
    assert ways["high"] == {"cost": "0.0050", "seconds_at_most": 3600}


async def test_what_comes_back_is_waited_for_and_then_announced(world: World) -> None:
    job = await finish_job(world)
    await request_move(world, job, tier="archive")
    await carry_out(world)
    world.store.slow_archive = True

    first = body(await request_move(world, job, tier="hot"))
    second = body(await request_move(world, job, tier="hot"))
    await carry_out(world)
    moving_view = await folder(world, job)
    error = body(await world.call("GET", f"{JOBS}/{job}/model/model.safetensors"))["error"]
    second_move = await request_move(world, job, tier="cool")
    hurried = body(await request_move(world, job, tier="hot", priority="high"))
    await carry_out(world)
    tiers = await list_tiers(world.store, job, "models/")
    world.store.rehydrate()
    await carry_out(world)
    view = await folder(world, job)
    world.clock.advance(minutes=6)
    await carry_out(world)

    assert first["id"] == second["id"]
    assert first["expected_at"] == int(world.clock().timestamp()) - 360 + 15 * 3600
    assert moving_view["state"] == "rehydrating"
    assert moving_view["rehydrating"] == {
        "priority": "standard",
        "expected_at": first["expected_at"],
    }
    assert error["code"] == "archived"
    assert "on its way back from the archive (standard priority, at 20" in error["message"]
    assert (second_move.status_code, body(second_move)["error"]["code"]) == (409, "archived")
    assert hurried["id"] == first["id"]
    assert first["expected_at"] - hurried["expected_at"] == 14 * 3600
    assert tiers["model.safetensors"].priority is ArchivePriority.HIGH
    assert (view["state"], view["moving_to"]) == ("online", "hot")  # nobody has looked yet
    assert (await codes(world, job))[-1] == "storage.rehydrated"
    assert (await world.call("GET", f"{JOBS}/{job}/model/model.safetensors")).status_code == 200


async def test_a_checkpoint_of_a_job_that_is_over_is_moved_by_itself(world: World) -> None:
    job = await finish_job(world)
    (newest, second, *_) = (await read_storage(world, job))["folders"]

    await request_move(world, job, f"checkpoints/{newest['checkpoint']}", tier="cold")
    await carry_out(world)

    moved, unmoved = (await read_storage(world, job))["folders"][:2]
    assert (moved["tier"], unmoved["tier"]) == ("cold", "hot")
    assert unmoved["checkpoint"] == second["checkpoint"]


async def pause_job(world: World) -> str:
    job, nodes, number = await start_with_checkpoints(world)
    await world.call("POST", f"{JOBS}/{job}/pause")
    await world.tick()
    await say_all(nodes, NodePhase.STOPPED, number, step=max(STEPS))
    await world.tick(10)
    assert (await world.job(job))["phase"] == "paused"
    return job


async def test_a_milestone_of_a_job_that_trains_may_be_cooled_and_what_it_will_drop_may_not(
    world: World,
) -> None:
    job, nodes, number = await start_with_checkpoints(world)
    entries = [committed(step, number) for step in (2, 4, 6, 8, 10)]
    entries[0] = replace(entries[0], milestone=True)
    for entry in entries:
        await put_files(world.store, job, entry.path)
    head = Head.from_json((await world.store.read(job, HEAD))[0])
    head = replace(head, checkpoints=tuple(entries))
    await world.store.write(job, HEAD, head.to_json().encode())
    await nodes[0].say(NodePhase.RUNNING, number, step=10, committed=(entries[-1],))
    await world.tick()
    *_, recent, milestone = (await read_storage(world, job))["folders"]

    response = await request_move(world, job, f"checkpoints/{milestone['checkpoint']}", tier="cool")
    dropped = await request_move(world, job, f"checkpoints/{recent['checkpoint']}", tier="cool")

    assert (milestone["step_number"], recent["step_number"]) == (2, 4)
    assert (response.status_code, dropped.status_code) == (200, 409)
    assert "Move a milestone" in body(dropped)["error"]["message"]


async def test_a_paused_job_resumes_from_an_older_checkpoint_only_if_that_can_be_read(
    world: World,
) -> None:
    job = await pause_job(world)
    newest, older, oldest = [f["path"] for f in (await read_storage(world, job))["folders"]]
    await delete(world, job, newest)
    for blob in await world.store.list_stored(job, older):
        await world.store.set_tier(job, blob.name, AccessTier.ARCHIVE)
    archived = body(await world.call("POST", f"{JOBS}/{job}/resume"))["error"]
    await delete(world, job, older)
    await delete(world, job, oldest)
    error = body(await world.call("POST", f"{JOBS}/{job}/resume"))["error"]
    await put_files(world.store, job, oldest)
    resumed = await world.call("POST", f"{JOBS}/{job}/resume")

    assert archived["code"] == "archived"
    assert (error["code"], newest in error["message"]) == ("checkpoint_not_found", True)
    assert resumed.status_code == 200


async def test_a_paused_job_with_an_archived_checkpoint_says_how_to_resume(world: World) -> None:
    job = await pause_job(world)
    for blob in await world.store.list_stored(job, "checkpoints/"):
        await world.store.set_tier(job, blob.name, AccessTier.ARCHIVE)  # a person, or a rule

    refusal = await world.call("POST", f"{JOBS}/{job}/resume")
    newest = (await read_storage(world, job))["folders"][0]["checkpoint"]
    started = await request_move(world, job, f"checkpoints/{newest}", tier="hot")
    await carry_out(world)
    resumed = await world.call("POST", f"{JOBS}/{job}/resume")

    error = body(refusal)["error"]
    assert (refusal.status_code, error["code"]) == (409, "archived")
    assert f"rekindle tier {job} hot --checkpoint {newest}" in error["message"]
    assert (started.status_code, resumed.status_code) == (200, 200)


async def test_more_money_takes_up_no_job_whose_checkpoint_was_archived(world: World) -> None:
    job = await pause_job(world)
    out_of_money = {"pause_requested_at": None, "over_budget_at": world.clock()}
    async with world.engine.begin() as conn:
        await conn.execute(update(tables.jobs).where(tables.jobs.c.id == job).values(out_of_money))
    for blob in await world.store.list_stored(job, "checkpoints/"):
        await world.store.set_tier(job, blob.name, AccessTier.ARCHIVE)
    fields = {"infrastructure": {"budget": {"amount": "900"}}}
    refusal = await world.call("PATCH", f"{JOBS}/{job}", json=fields)
    renamed = await world.call("PATCH", f"{JOBS}/{job}", json={"metadata": {"team": "red"}})

    assert (refusal.status_code, body(refusal)["error"]["code"]) == (409, "archived")
    assert (await world.job(job))["infrastructure"]["budget"] is None
    assert renamed.status_code == 200


async def test_a_folder_that_is_gone_is_not_there_already(world: World) -> None:
    job = await finish_job(world)
    checkpoint = (await folder(world, job, "checkpoint"))["checkpoint"]
    await delete(world, job, "models/")
    await delete(world, job, "checkpoints/")

    for dry_run in (True, False):
        refusal = await request_move(world, job, tier="hot", dry_run=dry_run)
        error = body(refusal)["error"]
        assert (refusal.status_code, error["code"]) == (404, "model_not_found")
        assert "was deleted from the storage account" in error["message"]
    second_move = await request_move(world, job, f"checkpoints/{checkpoint}", tier="cool")
    assert body(second_move)["error"]["code"] == "checkpoint_not_found"
    assert (await folder(world, job))["state"] == "gone"
    assert await codes(world, job) == []


async def test_an_archived_manifest_is_refused_with_how_to_rehydrate(world: World) -> None:
    job = await finish_job(world)
    for blob in await world.store.list_stored(job, "models/"):
        await world.store.set_tier(job, blob.name, AccessTier.ARCHIVE)  # a rule knows no manifests

    refusal = await world.call("GET", f"{JOBS}/{job}/model")

    error = body(refusal)["error"]
    assert (refusal.status_code, error["code"]) == (409, "archived")
    assert f"rekindle tier {job} hot" in error["message"]


async def delete(world: World, job: str, prefix: str) -> None:
    for blob in await world.store.list_stored(job, prefix):
        await world.store.delete(job, blob.name)


@dataclass
class StubbornStore(MemoryStore):
    """Takes one order, and then none until it is told to."""

    orders_left: int = 1

    async def set_tier(self, *order: Any) -> None:  # noqa: ANN401 - as the base class
        if not self.orders_left:
            raise StorageError("ServerBusy")
        self.orders_left -= 1
        await super().set_tier(*order)


async def test_a_move_goes_on_where_it_was_and_says_once_that_it_is_late(world: World) -> None:
    job = await finish_job(world)
    path = (await folder(world, job))["path"]
    for name in ("second", "third"):
        await world.store.write(job, f"{path}/{name}.safetensors", bytes(200 * 1024))
    stubborn = StubbornStore(**vars(world.store))
    world.store = stubborn
    await request_move(world, job, tier="cool")
    for _ in range(3):
        await make_moves(world).run_once()
        world.clock.advance(seconds=31)
    cooled = [b for b in await stubborn.list_stored(job, path) if b.tier is AccessTier.COOL]
    stubborn.orders_left = 9
    await carry_out(world)

    assert len(cooled) == 1
    cool_blobs = [b for b in await stubborn.list_stored(job, path) if b.tier is AccessTier.COOL]
    assert len(cool_blobs) == 3
    assert 9 - stubborn.orders_left == 2  # what was there already was not touched again
    assert await codes(world, job) == [
        "storage.tier_asked",
        "storage.tier_delayed",
        "storage.tier_changed",
    ]
