"""Whatever a node leaves as HEAD: cancel, pause, budget and silence end its machines.

All hostile documents are tried at a time, each in the container of a job of its own: so it is seen
too that none of them is in the way of another job.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from service.domain.cloud.fleet import scale_set_name
from service.storage.fake import MemoryStore
from service.storage.store import PreconditionFailed
from tests.nodes.hostile import HEADS
from tests.nodes.scripted_node import ScriptedNode, committed, metrics
from tests.world import World
from trainer.contract import HEAD, MANIFEST, MEASURED, BrokenCheckpoint, Head, NodePhase

JOBS = "/v1/fine_tuning/jobs"
AT_ONCE = 200
FEW = ["the largest generation", "a model with NUL"]


@dataclass(repr=False)
class Victim:
    """One job on one machine that trains, and what is left as its HEAD."""

    world: World
    head: str
    id: str = ""
    attempt_id: str = ""
    node: ScriptedNode = field(init=False)
    number: int = 0

    async def be_seated(self) -> None:
        """Its machine registers."""
        (attempt,) = await self.world.attempts_of(self.id)
        found = await self.world.cloud.get(scale_set_name(attempt["id"]))
        self.attempt_id = attempt["id"]
        self.node = ScriptedNode(self.world, attempt["id"], found.instances[0].vm_id)
        assert (await self.node.register()).status_code == 200
        await self.node.say(NodePhase.READY)

    async def go_on(self, phase: NodePhase = NodePhase.RUNNING, **more: Any) -> None:  # noqa: ANN401
        """Its node says that it trains, whatever it is told."""
        await self.node.say(phase, self.number, step=1, **more)


@dataclass(repr=False)
class Victims:
    """All of them, in one world."""

    world: World
    all: list[Victim]

    async def tick(self, times: int, seconds: float, *, chatty: bool = True) -> None:
        """Let time pass."""
        for _ in range(times):
            for _ in range(round(seconds / 15)):  # else the service takes itself for deaf
                self.world.clock.advance(seconds=15)
                self.world.attempts.visibility.record_round(self.world.clock())
            for one in self.all:
                if chatty:
                    await one.go_on()
            await self.world.jobs.run_once(AT_ONCE)
            await self.world.attempts.run_once(AT_ONCE)

    async def left(self) -> list[str]:
        """Those whose first machine is still there."""
        there = self.world.cloud.billed_names()
        return [one.head for one in self.all if scale_set_name(one.attempt_id) in there]

    async def ask(self, what: str) -> None:
        """Ask it of each job."""
        for one in self.all:
            answer = await self.world.call("POST", f"{JOBS}/{one.id}/{what}")
            assert answer.status_code == 200, answer.text

    async def states(self) -> set[tuple[str, str]]:
        """Status and phase of the jobs."""
        shown = [await self.world.job(one.id) for one in self.all]
        return {(job["status"], job["phase"]) for job in shown}


async def start_victims(world: World, heads: Sequence[str], **infrastructure: Any) -> Victims:  # noqa: ANN401
    """Submit a job for each HEAD, and let it train."""
    file, victims = await world.upload(), [Victim(world, name) for name in heads]
    for one in victims:
        asked = {"nodes": 1, **infrastructure}
        job = await world.submit(training_file=file, infrastructure=asked)
        one.id = job["id"]
    made = Victims(world, victims)
    while sum(bool(found.instances) for found in world.cloud.list_existing(())) < len(victims):
        await made.tick(1, 15, chatty=False)
    for one in victims:
        await one.be_seated()
    await made.tick(1, 15, chatty=False)
    for one in victims:
        one.number = (await one.node.hear()).number
        await one.go_on(metrics=(metrics(1),))
    await made.tick(2, 15)
    return made


@pytest.fixture(params=[FEW, pytest.param(list(HEADS), marks=pytest.mark.long)], ids=len)
async def heads(request: pytest.FixtureRequest) -> list[str]:
    """Those of each kind, and all: to their reader most are the same."""
    found: list[str] = request.param
    return found


async def attack(world: World, heads: Sequence[str], **infrastructure: Any) -> Victims:  # noqa: ANN401
    """Submit a job for each HEAD, let it train, and write that HEAD."""
    made = await start_victims(world, heads, **infrastructure)
    for one in made.all:
        await world.store.write(one.id, HEAD, HEADS[one.head])
    return made


@pytest.mark.parametrize(
    ("request_", "ticks", "seconds", "state"),
    [("cancel", 8, 60, ("cancelled", "done")), ("pause", 13, 120, ("queued", "paused"))],
)
async def test_a_cancel_or_pause_ends_the_machines_whatever_head_holds(
    world: World, heads: list[str], request_: str, ticks: int, seconds: int, state: tuple[str, str]
) -> None:
    victims = await attack(world, heads)
    await victims.tick(2, 15)
    await victims.ask(request_)
    await victims.tick(ticks, seconds)

    assert await victims.left() == []
    assert await victims.states() == {state}


async def test_a_budget_ends_the_machines_whatever_head_holds(
    world: World, heads: list[str]
) -> None:
    victims = await attack(world, heads, budget={"amount": "20"})
    world.clock.advance(minutes=100)
    await victims.tick(13, 120)

    assert await victims.left() == []
    assert await victims.states() == {("queued", "paused")}


async def test_silence_ends_the_machines_whatever_head_holds(
    world: World, heads: list[str]
) -> None:
    victims = await attack(world, heads)
    await victims.tick(6, 120, chatty=False)

    assert await victims.left() == []


async def test_a_head_that_stays_unreadable_pauses_its_job_and_says_why(world: World) -> None:
    made = await start_victims(world, ["no JSON", "a model with NUL"])
    for one in made.all:
        await world.store.write(one.id, HEAD, HEADS[one.head])
    await made.tick(15, 120)
    shown = [(await world.job(one.id))["status_reason"] for one in made.all]

    assert await made.left() == []
    assert await made.states() == {("queued", "paused")}
    assert [reason["code"] for reason in shown] == ["head_unreadable"] * 2
    assert all("HEAD" in reason["message"] for reason in shown)

    for one in made.all:
        await world.store.write(one.id, HEAD, Head(generation=1).to_json().encode())
    await made.ask("resume")
    await made.tick(8, 15, chatty=False)
    assert [len(await world.attempts_of(one.id)) for one in made.all] == [2, 2]


async def test_a_node_that_finishes_without_a_model_does_not_hold_its_machine(world: World) -> None:
    made = await start_victims(world, ["any"])
    await made.ask("pause")
    for _ in range(13):
        await made.all[0].go_on(NodePhase.FINISHED)
        await made.tick(1, 120, chatty=False)

    assert await made.left() == []
    assert await made.states() == {("queued", "paused")}


@dataclass(repr=False)
class Leased(MemoryStore):
    """HEAD is held by a lease of somebody else's, as a SAS with write allows."""

    held: bool = False

    async def write(
        self, container: str, name: str, data: bytes, *, if_match: str = "", if_absent: bool = False
    ) -> str:
        if self.held and name == HEAD:
            raise PreconditionFailed(f"{container}/{name} was written meanwhile: LeaseIdMissing")
        more = {"if_match": if_match, "if_absent": if_absent}
        return await super().write(container, name, data, **more)  # type: ignore[arg-type] # a mix


async def test_a_head_that_cannot_be_taken_does_not_hold_the_machine(world: World) -> None:
    made = await start_victims(world, ["any"])
    store = Leased(**vars(world.store), held=True)
    world.attempts = replace(world.attempts, store=store)
    await made.all[0].go_on(NodePhase.STOPPED)
    for _ in range(14):
        await made.all[0].go_on(NodePhase.STOPPED)
        await made.tick(1, 120, chatty=False)

    assert await made.left() == []
    assert await made.states() == {("queued", "paused")}


MEASUREMENTS = [
    b"\xff",
    b"[" * 3000,
    metrics(1).to_json().replace("0.5", "1e400").encode(),
    metrics(1).to_json().replace('"tokens":100', '"tokens":1' + "0" * 30).encode(),
    metrics(1).to_json().replace('"step":1', '"step":2147483647').encode(),
    b"x" * 100_000,
]


async def test_a_job_ends_with_its_model_whatever_was_left_as_its_measurements(
    world: World,
) -> None:
    made = await start_victims(world, ["any"])
    (one,) = made.all
    model = committed(60, one.number, "final")
    good = [metrics(step).to_json().encode() for step in (2, 3)]
    lines = b"\n".join([good[0], *MEASUREMENTS, good[1]])
    await world.store.write(one.id, f"{model.path}/{MEASURED}", lines)
    head = Head(generation=one.number, model=model)
    await world.store.write(one.id, HEAD, head.to_json().encode())
    await made.tick(8, 60)
    path = f"{JOBS}/{one.id}/metrics"
    steps = [row["step"] for row in (await world.call("GET", path)).json()["data"]]

    assert await made.left() == []
    assert (await world.job(one.id))["status"] == "succeeded"
    assert steps == [1, 2, 3]


@pytest.mark.parametrize("manifest", [b"[" * 100_000, b"{}", b'{"step": 1e999}'])
async def test_a_checkpoint_with_an_invalid_manifest_is_dropped(
    world: World, manifest: bytes
) -> None:
    made = await start_victims(world, ["any"])
    (one,) = made.all
    entry = replace(committed(1, one.number), manifest_sha256=hashlib.sha256(manifest).hexdigest())
    await world.store.write(one.id, f"{entry.path}/{MANIFEST}", manifest)
    head = Head(generation=one.number, checkpoints=(entry,))
    await world.store.write(one.id, HEAD, head.to_json().encode())
    await made.tick(1, 15)
    await one.go_on(NodePhase.STOPPED)
    await made.tick(1, 15, chatty=False)
    one.number = (await one.node.hear()).number
    broken = BrokenCheckpoint(path=entry.path, file=MANIFEST, reason="is invalid")
    await one.go_on(NodePhase.STOPPED, broken=broken)
    await made.tick(2, 15, chatty=False)
    told = [e["message"] for e in await world.events(one.id, "checkpoint.broken")]
    taken, _ = await world.store.read(one.id, HEAD)

    assert len(told) == 1
    assert "manifest.json is invalid" in told[0]
    assert Head.from_json(taken).checkpoints == ()
