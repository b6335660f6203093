"""What a job's detail tells: phases, progress, what its attempts' time went into."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.nodes.scripted_node import (
    ScriptedNode,
    boot,
    commit,
    committed,
    metrics,
    say_all,
    start_training,
    train,
)
from tests.world import JOBS, SPOT, World
from trainer.contract import NodePhase, Span

Json = dict[str, Any]


async def evict_second_machine(
    world: World, nodes: list[ScriptedNode], number: int, step: int
) -> None:
    """Azure announces that it takes the second machine; everything is saved at ``step``."""
    await nodes[1].notice(number, step=step)
    await world.tick(1, seconds=1)
    await commit(world, await _job_of(world), committed(step, number, "stop"))
    await say_all(nodes, NodePhase.STOPPED, number, step=step, eviction=None)
    await world.tick(1, seconds=1)


async def _job_of(world: World) -> str:
    return str((await world.call("GET", JOBS)).json()["data"][0]["id"])


async def test_the_phases_of_a_job_that_is_evicted_once(world: World) -> None:
    phases = []

    async def look(at: str) -> Json:
        view = await world.job(at)
        phases.append((view["phase"], view["status_reason"]["code"]))
        return view

    job = await world.submit()
    await look(job["id"])
    nodes = await boot(world, job["id"])
    await look(job["id"])
    number = await train(world, nodes, step=3)
    await look(job["id"])
    await nodes[1].notice(number, step=4)
    await world.tick(1, seconds=1)
    await look(job["id"])
    await commit(world, job["id"], committed(4, number, "stop"))
    await say_all(nodes, NodePhase.STOPPED, number, step=4)
    await world.attempts.run_once()
    recovering = await look(job["id"])
    await world.jobs.run_once()
    await look(job["id"])
    new_nodes = await boot(world, job["id"])
    await world.tick()
    await look(job["id"])
    number = await train(world, new_nodes, step=5)
    resumed = await look(job["id"])

    assert phases == [
        ("validating", "validating"),
        ("booting", "joined"),
        ("training", "training"),
        ("saving", "eviction_notice"),
        ("recovering", "spot_evicted"),
        ("recovering", "spot_evicted"),
        ("loading", "loading"),
        ("training", "training"),
    ]
    assert recovering["status_reason"]["message"] == (
        "1 of 2 machines was evicted in eastus with notice; looking for machines to go on from "
        "step 4."
    )
    assert resumed["latest_checkpoint"]["step_number"] == 4
    assert (resumed["progress"]["lost_steps"], resumed["attempts"]["evictions"]) == (0, 1)


async def test_refused_capacity_is_shown_with_place_count_and_next_try(world: World) -> None:
    world.cloud.sold_out.add(SPOT)
    job = await world.submit()
    await world.tick(10, seconds=20)

    view = await world.job(job["id"])

    reason = view["status_reason"]
    assert (view["status"], view["phase"], reason["code"]) == (
        *("queued", "waiting_capacity", "no_capacity"),
    )
    assert f"no capacity for 2 or more machines of {SPOT}: " in reason["message"]
    assert "refused 2 times in a row since 12:0" in reason["message"]
    next_try = f"{datetime.fromtimestamp(reason['next_try_at'], UTC):%H:%M:%S} UTC"
    assert f"The next request is at {next_try}" in reason["message"]

    await world.tick(24, seconds=20)
    later_reason = (await world.job(job["id"]))["status_reason"]
    (listed_job,) = (await world.call("GET", JOBS)).json()["data"]

    later_try = f"{datetime.fromtimestamp(later_reason['next_try_at'], UTC):%H:%M:%S} UTC"
    assert f"The next request is at {later_try}" in later_reason["message"]
    assert view["created_at"] <= later_reason["since"] == reason["since"] < reason["next_try_at"]
    assert listed_job["status_reason"] == later_reason

    world.clock.advance(seconds=3600)
    overdue = (await world.job(job["id"]))["status_reason"]["next_try_at"]
    assert overdue == int(world.clock().timestamp()) + 60, "it is looked at every minute"


async def test_an_attempt_that_never_was_launched_lost_no_scale_set(world: World) -> None:
    job = await world.submit()
    await world.jobs.run_once()
    await world.jobs.run_once()
    await world.call("POST", f"{JOBS}/{job['id']}/cancel")
    await world.tick(3)

    messages = [e["message"] for e in (await world.get(f"{JOBS}/{job['id']}/events"))["data"]]

    assert "Attempt 1: ended before any machine was asked for" in messages
    assert not any("scale set is gone" in m for m in messages)


async def test_progress_tells_speed_loss_epoch_and_what_was_lost(world: World) -> None:
    job, nodes, number = await start_training(world)
    batch = [metrics(step, loss=3.0 - step / 10) for step in range(2, 12)]
    await nodes[0].say(NodePhase.RUNNING, number, step=11, metrics=tuple(batch))
    await commit(world, job, committed(5, number))
    await world.tick()
    before = (await world.job(job))["progress"]
    await say_all(nodes, NodePhase.FAILED, number, step=11, error="killed")
    await world.tick()
    job_between = await world.job(job)
    second = await train(world, nodes, step=6)

    after = (await world.job(job))["progress"]
    (attempt,) = await world.attempts_of(job)

    assert second == number + 1
    assert before == {
        "step": 11,
        "total_steps": 60,
        "percent": 18.3,
        "epoch": 0.55,
        "seconds_per_step": 0.5,
        "tokens_per_second": 200.0,
        "loss": 1.9,
        "valid_loss": None,
        **dict.fromkeys(("margin", "reward", "kl", "answer_tokens")),
        "lost_steps": 0,
    }
    progress = job_between["progress"]
    assert (progress["step"], progress["lost_steps"], job_between["phase"]) == (5, 6, "loading")
    assert (after["step"], after["lost_steps"], after["loss"]) == (6, 6, 2.0)
    assert (attempt["lost_steps"], attempt["last_step"]) == (6, 11)


async def test_steps_lost_without_notice_are_counted_once_for_job_and_attempt(world: World) -> None:
    job, nodes, number = await start_training(world, step=9)
    await commit(world, job, committed(4, number))
    await world.tick()
    world.cloud.evict("rk-" + nodes[0].attempt_id.removeprefix("att-"), "1")
    await world.tick()
    await say_all(nodes, NodePhase.STOPPED, number, step=9)
    await world.tick(2)
    new_nodes = await boot(world, job)
    await train(world, new_nodes, step=5)

    view, attempts = await world.job(job), await world.attempts_of(job)

    assert view["progress"]["lost_steps"] == 5 == sum(a["lost_steps"] for a in attempts)
    assert attempts[0]["evicted"] == {"noticed": 0, "unnoticed": 1}
    assert attempts[0]["reason"].endswith("without notice.")


async def test_a_job_says_since_when_it_loads_and_takes_its_first_step(world: World) -> None:
    job = await world.submit()
    nodes = await boot(world, job["id"])
    await world.tick()
    number = (await nodes[0].hear()).number
    loading = await world.job(job["id"])
    world.clock.advance(seconds=60)
    now = world.clock().timestamp()
    loaded = (Span(name="load", started_at=now - 60, ended_at=now),)
    for node in (*nodes, nodes[0]):  # what was said before is no news
        await node.say(NodePhase.RUNNING, number, spans=loaded)
    first_step = await world.job(job["id"])
    codes = [e["code"] for e in (await world.get(f"{JOBS}/{job['id']}/events"))["data"]]

    assert loading["status_reason"]["code"] == "loading"
    assert "load model and data, since" in loading["status_reason"]["message"]
    assert first_step["phase"] == "loading"
    assert first_step["status_reason"]["code"] == "first_step"
    clock = world.clock().strftime("%H:%M:%S UTC")
    assert f"the first step is running, since {clock}" in first_step["status_reason"]["message"]
    assert codes.count("generation.loaded") == 1
    assert first_step["version"] > loading["version"]


async def test_an_attempt_shows_what_its_time_went_into(world: World) -> None:
    job = await world.submit()
    nodes = await boot(world, job["id"])
    now = world.clock().timestamp()
    number = await train(world, nodes, step=3)
    spans = tuple(
        Span(name=name, started_at=now + started_at, ended_at=now + started_at + 0.5)
        for name, started_at in (("fetch_inputs", 15), ("load_model", 17), ("first_step", 18))
    )
    await nodes[0].say(NodePhase.RUNNING, number, step=3, spans=spans)
    await evict_second_machine(world, nodes, number, step=4)
    await world.tick(20)

    attempt = (await world.attempts_of(job["id"]))[0]
    first_attempt = await world.get(f"{JOBS}/{job['id']}/attempts/1")

    entries = {e["name"]: e for e in attempt["timeline"]}
    order = [e["name"] for e in attempt["timeline"]]
    assert [n for n in order if n != "stop"] == [
        *("create", "allocate", "boot", "fetch_inputs", "load_model", "first_step", "train"),
        *("save", "delete"),
    ]
    assert entries["fetch_inputs"]["title"] == "Fetching model and data"
    assert entries["fetch_inputs"]["seconds"] == 0.5
    assert entries["delete"]["ended_at"] == attempt["ended_at"]
    assert all(e["ended_at"] >= e["started_at"] for e in attempt["timeline"])
    assert (attempt["steps"], attempt["lost_steps"]) == (4, 0)
    assert attempt["evicted"] == {"noticed": 1, "unnoticed": 0}
    assert attempt["reason"] == "1 of 2 instances evicted after notice."
    assert first_attempt == attempt


async def test_a_page_of_jobs_takes_one_query(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    counts = []
    for _ in range(2):
        await world.submit()
        await world.tick(1)
        caplog.clear()
        with caplog.at_level("INFO", logger="sqlalchemy.engine"):
            await world.call("GET", JOBS)
        counts.append(sum("from jobs" in r.message.lower() for r in caplog.records))

    assert counts == [1, 1]
