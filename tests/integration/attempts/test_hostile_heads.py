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
        scale_set = await self.world.cloud.get(scale_set_name(attempt["id"]))
        self.attempt_id = attempt["id"]
        self.node = ScriptedNode(self.world, attempt["id"], scale_set.instances[0].vm_id)
        assert (await self.node.register()).status_code == 200
        await self.node.say(NodePhase.READY)

    async def go_on(self, phase: NodePhase = NodePhase.RUNNING, **fields: Any) -> None:  # noqa: ANN401
        """Its node says that it trains, whatever it is told."""
        await self.node.say(phase, self.number, step=1, **fields)


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
            for victim in self.all:
                if chatty:
                    await victim.go_on()
            await self.world.jobs.run_once(AT_ONCE)
            await self.world.attempts.run_once(AT_ONCE)

    async def with_machines(self) -> list[str]:
        """Those whose first machine is still there."""
        billed_names = self.world.cloud.billed_names()
        return [
            victim.head for victim in self.all if scale_set_name(victim.attempt_id) in billed_names
        ]

    async def ask(self, action: str) -> None:
        """Ask it of each job."""
        for victim in self.all:
            response = await self.world.call("POST", f"{JOBS}/{victim.id}/{action}")
            assert response.status_code == 200, response.text

    async def states(self) -> set[tuple[str, str]]:
        """Status and phase of the jobs."""
        jobs = [await self.world.job(victim.id) for victim in self.all]
        return {(job["status"], job["phase"]) for job in jobs}


async def start_victims(world: World, heads: Sequence[str], **infrastructure: Any) -> Victims:  # noqa: ANN401
    """Submit a job for each HEAD, and let it train."""
    file, victims = await world.upload(), [Victim(world, name) for name in heads]
    for victim in victims:
        requested = {"nodes": 1, **infrastructure}
        job = await world.submit(training_file=file, infrastructure=requested)
        victim.id = job["id"]
    trained_victims = Victims(world, victims)
    while sum(bool(scale_set.instances) for scale_set in world.cloud.list_existing(())) < len(
        victims
    ):
        await trained_victims.tick(1, 15, chatty=False)
    for victim in victims:
        await victim.be_seated()
    await trained_victims.tick(1, 15, chatty=False)
    for victim in victims:
        victim.number = (await victim.node.hear()).number
        await victim.go_on(metrics=(metrics(1),))
    await trained_victims.tick(2, 15)
    return trained_victims


@pytest.fixture(params=[FEW, pytest.param(list(HEADS), marks=pytest.mark.long)], ids=len)
async def heads(request: pytest.FixtureRequest) -> list[str]:
    """Those of each kind, and all: to their reader most are the same."""
    names: list[str] = request.param
    return names


async def attack(world: World, heads: Sequence[str], **infrastructure: Any) -> Victims:  # noqa: ANN401
    """Submit a job for each HEAD, let it train, and write that HEAD."""
    victims = await start_victims(world, heads, **infrastructure)
    for victim in victims.all:
        await world.store.write(victim.id, HEAD, HEADS[victim.head])
    return victims


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

    assert await victims.with_machines() == []
    assert await victims.states() == {state}


async def test_a_budget_ends_the_machines_whatever_head_holds(
    world: World, heads: list[str]
) -> None:
    victims = await attack(world, heads, budget={"amount": "20"})
    world.clock.advance(minutes=100)
    await victims.tick(13, 120)

    assert await victims.with_machines() == []
    assert await victims.states() == {("queued", "paused")}


async def test_silence_ends_the_machines_whatever_head_holds(
    world: World, heads: list[str]
) -> None:
    victims = await attack(world, heads)
    await victims.tick(6, 120, chatty=False)

    assert await victims.with_machines() == []


async def test_a_head_that_stays_unreadable_pauses_its_job_and_says_why(world: World) -> None:
    victims = await start_victims(world, ["no JSON", "a model with NUL"])
    for victim in victims.all:
        await world.store.write(victim.id, HEAD, HEADS[victim.head])
    await victims.tick(15, 120)
    reasons = [(await world.job(victim.id))["status_reason"] for victim in victims.all]

    assert await victims.with_machines() == []
    assert await victims.states() == {("queued", "paused")}
    assert [reason["code"] for reason in reasons] == ["head_unreadable"] * 2
    assert all("HEAD" in reason["message"] for reason in reasons)

    for victim in victims.all:
        await world.store.write(victim.id, HEAD, Head(generation=1).to_json().encode())
    await victims.ask("resume")
    await victims.tick(8, 15, chatty=False)
    assert [len(await world.attempts_of(victim.id)) for victim in victims.all] == [2, 2]


async def test_a_node_that_finishes_without_a_model_does_not_hold_its_machine(world: World) -> None:
    victims = await start_victims(world, ["any"])
    await victims.ask("pause")
    for _ in range(13):
        await victims.all[0].go_on(NodePhase.FINISHED)
        await victims.tick(1, 120, chatty=False)

    assert await victims.with_machines() == []
    assert await victims.states() == {("queued", "paused")}


@dataclass(repr=False)
class Leased(MemoryStore):
    """HEAD is held by a lease of somebody else's, as a SAS with write allows."""

    held: bool = False

    async def write(
        self, container: str, name: str, data: bytes, *, if_match: str = "", if_absent: bool = False
    ) -> str:
        if self.held and name == HEAD:
            raise PreconditionFailed(f"{container}/{name} was written meanwhile: LeaseIdMissing")
        conditions = {"if_match": if_match, "if_absent": if_absent}
        return await super().write(container, name, data, **conditions)  # type: ignore[arg-type] # a mix


async def test_a_head_that_cannot_be_taken_does_not_hold_the_machine(world: World) -> None:
    victims = await start_victims(world, ["any"])
    store = Leased(**vars(world.store), held=True)
    world.attempts = replace(world.attempts, store=store)
    await victims.all[0].go_on(NodePhase.STOPPED)
    for _ in range(14):
        await victims.all[0].go_on(NodePhase.STOPPED)
        await victims.tick(1, 120, chatty=False)

    assert await victims.with_machines() == []
    assert await victims.states() == {("queued", "paused")}


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
    victims = await start_victims(world, ["any"])
    (victim,) = victims.all
    model = committed(60, victim.number, "final")
    samples = [metrics(step).to_json().encode() for step in (2, 3)]
    measured = b"\n".join([samples[0], *MEASUREMENTS, samples[1]])
    await world.store.write(victim.id, f"{model.path}/{MEASURED}", measured)
    head = Head(generation=victim.number, model=model)
    await world.store.write(victim.id, HEAD, head.to_json().encode())
    await victims.tick(8, 60)
    path = f"{JOBS}/{victim.id}/metrics"
    steps = [row["step"] for row in (await world.call("GET", path)).json()["data"]]

    assert await victims.with_machines() == []
    assert (await world.job(victim.id))["status"] == "succeeded"
    assert steps == [1, 2, 3]


@pytest.mark.parametrize("manifest", [b"[" * 100_000, b"{}", b'{"step": 1e999}'])
async def test_a_checkpoint_with_an_invalid_manifest_is_dropped(
    world: World, manifest: bytes
) -> None:
    victims = await start_victims(world, ["any"])
    (victim,) = victims.all
    entry = replace(
        committed(1, victim.number), manifest_sha256=hashlib.sha256(manifest).hexdigest()
    )
    await world.store.write(victim.id, f"{entry.path}/{MANIFEST}", manifest)
    head = Head(generation=victim.number, checkpoints=(entry,))
    await world.store.write(victim.id, HEAD, head.to_json().encode())
    await victims.tick(1, 15)
    await victim.go_on(NodePhase.STOPPED)
    await victims.tick(1, 15, chatty=False)
    victim.number = (await victim.node.hear()).number
    fault = BrokenCheckpoint(path=entry.path, file=MANIFEST, reason="is invalid")
    await victim.go_on(NodePhase.STOPPED, broken=fault)
    await victims.tick(2, 15, chatty=False)
    messages = [e["message"] for e in await world.events(victim.id, "checkpoint.broken")]
    head_content, _ = await world.store.read(victim.id, HEAD)

    assert len(messages) == 1
    assert "manifest.json is invalid" in messages[0]
    assert Head.from_json(head_content).checkpoints == ()
