"""Nobody is taken for silent, late or gone who could not be heard, asked or seen."""

from dataclasses import dataclass, field, replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from service.cloud.fake import FakeCloud
from service.cloud.provider import CloudError, ScaleSetNotFound
from service.db.attempts import attempts
from service.domain.cloud.fleet import ScaleSet, scale_set_name
from service.reconciler.cloud.heartbeat_visibility import HeartbeatVisibility
from service.reconciler.cloud.ingress_probe import IngressProbe, make_probe
from tests.nodes.scripted_node import ScriptedNode, commit, committed, say_all, start_training
from tests.world import DATASET, World
from trainer.contract import DirectiveKind, NodePhase

ELASTIC = {"infrastructure": {"nodes": 3, "elastic": {"min_nodes": 1}}}
SHUT = "https://rekindle.test: ConnectError: nobody answers"


@dataclass
class Door:
    """Where nodes knock."""

    why: str = ""
    probes: int = 0

    async def probe(self) -> str:
        self.probes += 1
        return self.why


@dataclass
class Sleeper(FakeCloud):
    """The process stands still once, while it waits for this cloud's answer."""

    sleeps: list[timedelta] = field(default_factory=list)

    async def get(self, name: str) -> ScaleSet:
        scale_set = await super().get(name)
        for pause in [self.sleeps.pop()] if self.sleeps else []:
            self.now.advance(seconds=pause.total_seconds())  # type: ignore[attr-defined]
        return scale_set


async def start_job(world: World) -> tuple[str, list[ScriptedNode], int]:
    job, nodes, number = await start_training(world)
    return job, nodes, number


async def start_elastic_job(world: World) -> tuple[str, list[ScriptedNode], int]:
    file = await world.upload(b"\n".join([DATASET] * 100))
    job, nodes, number = await start_training(world, step=3, **ELASTIC, training_file=file)
    return job, nodes, number


async def say_running(nodes: list[ScriptedNode], number: int, step: int) -> None:
    await say_all(nodes, NodePhase.RUNNING, number, step=step)


async def state(world: World, job_id: str) -> tuple[str, str | None]:
    newest = (await world.attempts_of(job_id))[-1]
    return newest["state"], newest["outcome"]


def reach(world: World, at: Door) -> IngressProbe:
    watch, limit = world.attempts.visibility, timedelta(minutes=30)
    return IngressProbe(
        engine=world.engine, probe=at.probe, visibility=watch, now=world.clock, max_blindness=limit
    )


async def pass_time(world: World, probe: IngressProbe, rounds: int) -> None:
    for _ in range(rounds):
        world.clock.advance(seconds=9)
        await probe.run_once()
        await world.attempts.run_once()


@pytest.mark.parametrize("shut", [True, False])
async def test_while_the_service_has_no_open_door_no_node_is_taken_for_silent(
    world: World, shut: bool
) -> None:
    job_id, _, _ = await start_job(world)
    at = Door(why=SHUT if shut else "")
    probe = reach(world, at)
    await pass_time(world, probe, 60)
    _, middle_state = await state(world, job_id)
    at.why = ""
    await pass_time(world, probe, 60)

    assert middle_state == (None if shut else "unresponsive")
    assert (await state(world, job_id))[1] == "unresponsive"  # the ingress is open now


async def test_the_ingress_is_not_probed_while_heartbeats_arrive(world: World) -> None:
    silent_job, _, _ = await start_job(world)
    _, nodes, number = await start_job(world)
    at = Door(why=SHUT)
    probe = reach(world, at)
    for step in range(2, 50):
        await say_running(nodes, number, step)
        await pass_time(world, probe, 1)

    assert at.probes == 0
    assert (await state(world, silent_job))[1] == "unresponsive"


async def test_a_door_that_never_opens_hides_silent_nodes_for_half_an_hour_and_no_longer(
    world: World,
) -> None:
    job_id, _, _ = await start_job(world)
    probe = reach(world, Door(why=SHUT))
    await pass_time(world, probe, 200)
    _, middle_state = await state(world, job_id)
    await pass_time(world, probe, 45)

    assert middle_state is None
    assert (await state(world, job_id))[1] == "unresponsive"


async def test_a_service_that_restarts_all_the_time_gives_silent_nodes_up_in_the_end(
    world: World,
) -> None:
    job_id, _, _ = await start_job(world)
    outcomes = []
    for _ in range(14):
        world.clock.advance(minutes=10)
        world.attempts = replace(world.attempts, visibility=HeartbeatVisibility())
        await world.attempts.run_once()
        outcomes.append((await state(world, job_id))[1])

    assert (outcomes[10], outcomes[-1]) == (None, "unresponsive")


async def test_an_unreachable_ingress_says_why() -> None:
    reason = await make_probe("https://127.0.0.1:9/")()

    assert reason.startswith("https://127.0.0.1:9/: Connect")


async def test_an_ingress_with_an_unready_service_counts_as_closed() -> None:
    class Tired(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/livez" else 503)
            self.end_headers()
            self.wfile.write(b"the database is away")

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Tired) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            reason = await make_probe(f"http://127.0.0.1:{server.server_port}")()
        finally:
            server.shutdown()

    assert "answered 503: the database is away" in reason


async def test_survivors_that_stopped_while_the_service_was_away_are_kept(world: World) -> None:
    job_id, nodes, number = await start_elastic_job(world)
    await commit(world, job_id, committed(2, number))
    world.cloud.evict(scale_set_name(nodes[0].attempt_id), "2")
    await say_running(nodes, number, 3)
    await world.tick()
    kinds = [(await node.hear()).kind for node in nodes[:2]]
    world.clock.advance(seconds=400)
    await world.attempts.run_once()
    await say_all(nodes[:2], NodePhase.STOPPED, number, step=3)
    await world.tick(2)

    assert kinds == [DirectiveKind.STOP] * 2
    (attempt,) = await world.attempts_of(job_id)
    assert (attempt["outcome"], len(attempt["generations"])) == (None, 2)


async def test_a_process_that_paused_during_a_poll_counts_no_node_as_silent(world: World) -> None:
    cloud = Sleeper(now=world.clock)
    world.cloud, world.attempts = cloud, replace(world.attempts, cloud=cloud)
    job_id, nodes, number = await start_job(world)
    world.clock.advance(seconds=20)
    await say_running(nodes, number, 2)
    cloud.sleeps = [timedelta(seconds=400)]
    await world.attempts.run_once()
    await world.attempts.run_once()

    assert cloud.sleeps == []
    assert await state(world, job_id) == ("running", None)


async def test_one_404_ends_no_run_and_a_second_one_does(world: World) -> None:
    job_id, nodes, number = await start_job(world)
    states = []
    for _ in range(2):
        await say_running(nodes, number, 2)
        world.clock.advance(seconds=10)
        world.cloud.fail_next = [ScaleSetNotFound("gone, or the front end lags")]
        await world.attempts.run_once()
        states.append(await state(world, job_id))

    assert states == [("running", None), ("terminating", "evicted")]
    answers = [await nodes[0].say(NodePhase.RUNNING, number, step=2), await nodes[0].ask()]
    assert [answer.status_code for answer in answers] == [410, 410]


@pytest.mark.parametrize(
    ("replicas", "doubted"), [(1, False), (2, False), (2, True)], ids=["same", "another", "doubted"]
)
async def test_a_404_after_which_a_replica_saw_the_set_is_not_the_first_of_two(
    world: World, replicas: int, doubted: bool
) -> None:
    """``doubted``: the list of a front end that lags lacks it as well, so it is looked at anew."""
    job_id, nodes, number = await start_job(world)
    ids = [nodes[0].attempt_id]
    first_replica = world.attempts
    second_replica = first_replica if replicas == 1 else replace(first_replica)
    for replica, missing in ((first_replica, True), (second_replica, False), (first_replica, True)):
        await say_running(nodes, number, 2)
        world.clock.advance(seconds=10)
        world.cloud.fail_next = [ScaleSetNotFound("the front end lags")] if missing else []
        await replica.run_once()
        if doubted and not missing:
            async with world.engine.begin() as conn:
                await attempts.request_reread(conn, ids, world.clock())

    assert await state(world, job_id) == ("running", None)


async def test_what_azure_did_not_tell_is_said_where_time_ran_out_for_it(world: World) -> None:
    job = await world.submit()
    await world.tick(3, seconds=5)
    for _ in range(85):
        world.cloud.fail_next = [CloudError("Azure is ill")] * 5
        await world.tick(seconds=30)

    first = (await world.attempts_of(job["id"]))[0]
    assert first["outcome"] == "no_capacity"
    assert "Azure does not tell" in first["reason"]


async def test_a_replica_that_cannot_write_counts_no_heartbeat_round(
    world: World, engine: AsyncEngine
) -> None:
    reads_only = engine.execution_options(postgresql_readonly=True)
    watch = world.attempts.visibility
    watch.record_round(world.clock())
    for _ in range(10):
        world.clock.advance(seconds=10)
        await replace(world.attempts, engine=reads_only).check_database()
    world.clock.advance(seconds=10)
    await world.attempts.check_database()

    assert watch.awake_since == world.clock()
