"""What goes wrong around a node while it works: Blob, the service, the clock, its trainer."""

import signal
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from tests.azurite import Azurite
from tests.nodes.cable import Cable, laid_to
from tests.nodes.scripted_service import ScriptedNode
from tests.nodes.supervised import QUICK, Scene
from trainer.contract import DirectiveKind, NodePhase, Trouble
from trainer.supervisor.blob.blocks import BlobRange
from trainer.supervisor.blob.container import BlobAccess, BlobUnavailableError
from trainer.supervisor.clock import NodeClock
from trainer.supervisor.control.launch import find_marked_processes

STOP = DirectiveKind.CHECKPOINT_AND_STOP
HOURS = 3 * 3600.0


@pytest.fixture
async def cable(azurite: Azurite, scene: Scene) -> AsyncIterator[Cable]:
    """Between the nodes and the job's container."""
    async with laid_to(azurite.port) as laid:
        scene.service.grants = replace(scene.job.grants, job=laid.through(scene.job.grants.job))
        yield laid


async def test_saves_wait_out_a_blob_that_is_away_and_the_user_is_told_once(
    scene: Scene, cable: Cable
) -> None:
    node = await scene.run_one("saves", limits=replace(QUICK, delayed=0.3))
    await scene.until(lambda: scene.job.head().newest)
    cable.cut()
    progress = scene.progress("one")
    await scene.until(lambda: _troubles(node))
    await scene.until(lambda: scene.progress("one") > progress + 20)
    committed = scene.job.head().newest
    cable.mend()
    await scene.until(lambda: any(t.until for t in _troubles(node)))
    await scene.until(lambda: scene.job.head().newest != committed)

    (started_trouble, ended_trouble) = _troubles(node)
    assert (started_trouble.kind, started_trouble.until) == ("uploads", 0.0)
    assert "training goes on" in started_trouble.message
    assert (ended_trouble.since, ended_trouble.until > ended_trouble.since) == (
        started_trouble.since,
        True,
    )
    assert node.last_heartbeat.phase is NodePhase.RUNNING


@pytest.mark.parametrize("kind", [STOP, DirectiveKind.STOP], ids=["save", "kill"])
async def test_a_stop_while_blob_is_away_is_committed_when_it_is_back(
    scene: Scene, cable: Cable, kind: DirectiveKind
) -> None:
    node = await scene.run_one("saves", limits=replace(QUICK, uploads_after_kill=20.0))
    await scene.until(lambda: scene.job.head().newest)
    cable.cut()
    before, work_folder = scene.job.newest().step, scene.folder / "one"
    await scene.until(lambda: list(work_folder.glob("gen-0001/outbox/*/rank-00000.json")))
    await scene.service.direct(node, kind, number=1)
    await scene.until(lambda: not find_marked_processes(str(work_folder)))
    cable.mend()
    await scene.until(lambda: node.has_reported(NodePhase.STOPPED, 1))

    assert scene.job.newest().step > before


@pytest.mark.parametrize(("off", "jumps"), [(HOURS, True), (-HOURS, False)])
async def test_a_clock_that_is_hours_off_costs_no_step_and_shows_nowhere(
    scene: Scene, off: float, jumps: bool
) -> None:
    error = 0.0 if jumps else off
    node = await scene.run_one(clock=NodeClock(now=lambda: time.time() + error))
    await scene.trains(node)
    error = off
    node.event, node.notice = "event-1", 6.0
    await scene.until(lambda: node.acknowledged)

    newest = scene.job.newest()
    assert newest.step == 10
    assert abs(newest.committed_at - time.time()) < 60.0
    assert node.last_heartbeat.eviction is not None
    spans = [s for h in node.heartbeats for s in h.spans if s.name in {"join", "fetch_inputs"}]
    assert len(spans) == 2
    assert all(abs(at - time.time()) < 60.0 for s in spans for at in (s.started_at, s.ended_at))
    assert jumps or abs(node.last_heartbeat.eviction.seen_at - time.time()) < 60.0


async def test_every_registration_says_by_which_clock_its_spans_are_dated(scene: Scene) -> None:
    node = scene.service.add("one")
    scene.start(node, clock=NodeClock(now=lambda: time.time() + HOURS))
    await scene.until(lambda: node.heartbeats)
    node.refusals.append((409, "stale_epoch"))
    await scene.until(lambda: len(node.registrations) == 2)

    ages = [r.now - r.spans[-1].ended_at for r in node.registrations]
    assert all(0.0 <= age < 60.0 for age in ages)


async def test_a_node_that_was_given_up_and_works_on_can_neither_commit_nor_overwrite(
    scene: Scene,
) -> None:
    late, successor = scene.service.add("late"), scene.service.add("heir")
    scene.start(late)
    await scene.generation(late)
    await scene.trains(late)
    late.cut_off = True  # the service believes that it is gone
    scene.start(successor)
    await scene.generation(successor, number=2)
    await scene.trains(successor)
    scene.service.nodes["late"].event = "event-1"  # it saves and uploads, unheard
    await scene.until(lambda: late.acknowledged)
    assert scene.job.head().checkpoints == ()
    await scene.service.direct(successor, STOP, number=2)
    await scene.until(lambda: successor.has_reported(NodePhase.STOPPED, 2))

    newest = scene.job.newest()
    assert (newest.generation, newest.step) == (2, 10)
    folders = {name.split("/")[1] for name in scene.job.names("checkpoints/")}
    assert {f.rsplit("-", 1)[1] for f in folders} == {"g1", "g2"}  # each wrote into its own
    late.cut_off = False
    late.refusals = [(410, "gone")] * 9
    await scene.tasks["late"]


async def test_a_trainer_killed_in_the_middle_of_a_save_tears_nothing(scene: Scene) -> None:
    node = await scene.run_one("half")
    work_folder = scene.folder / "one"
    torn = work_folder / "gen-0001" / "outbox" / "checkpoints-step-00000020-g1"
    await scene.until(lambda: torn.exists() and scene.job.head().newest)
    for process in find_marked_processes(str(work_folder)):
        process.send_signal(signal.SIGKILL)
    await scene.until(lambda: node.has_reported(NodePhase.FAILED, 1))
    assert [c.step for c in scene.job.head().checkpoints] == [10]
    assert not any("step-00000020" in name for name in scene.job.names())
    scene.modes["one"] = "train"
    generation = await scene.generation(node, number=2)
    await scene.until(
        lambda: node.has_reported(NodePhase.RUNNING, 2) and node.last_heartbeat.step > 10
    )

    assert generation.checkpoint is not None
    assert generation.checkpoint.step == 10


async def test_a_port_that_somebody_took_blames_no_trainer(scene: Scene) -> None:
    node = await scene.run_one("no port")
    await scene.until(lambda: node.has_reported(NodePhase.STOPPED, 1))

    assert "port 29500 was taken" in node.last_heartbeat.error


async def test_a_base_model_that_is_missing_in_blob_is_named_and_blames_no_trainer(
    scene: Scene,
) -> None:
    path = next(p for p in scene.job.grants.inputs if p.endswith(".safetensors"))
    container, _, name = path.partition("/")
    missing_url = scene.job.azurite.blob_sas(container, f"not-{name}")
    scene.service.grants = replace(
        scene.job.grants, inputs={**scene.job.grants.inputs, path: missing_url}
    )
    node = await scene.run_one()
    await scene.until(lambda: node.has_reported(NodePhase.STOPPED, 1))

    assert f"not-{name}" in node.last_heartbeat.error
    assert "404" in node.last_heartbeat.error

    scene.service.fresh = replace(scene.job.grants, inputs={})
    await scene.generation(node, number=2)
    await scene.until(lambda: node.has_reported(NodePhase.STOPPED, 2))

    assert f"{path}: the run spec names it, but no grant" in node.last_heartbeat.error


class Hiccup(BlobAccess):
    """Loses its connection once, with half of the base model fetched."""

    over = False

    async def receive(self, blob_range: BlobRange, *, in_subprocess: bool) -> tuple[int, int]:
        """Fetch, or lose the connection."""
        if self.over or "model" not in blob_range.path.name:
            return await super().receive(blob_range, in_subprocess=in_subprocess)
        self.over = True
        blob_range.path.write_bytes(bytes(blob_range.length // 2))
        raise BlobUnavailableError("the connection broke off")


async def test_a_base_model_that_took_longer_than_an_outage_may_survives_a_hiccup(
    scene: Scene,
) -> None:
    scene.access = access = Hiccup()
    scene.service.grants = replace(scene.job.grants, inputs={})  # nothing is fetched ahead
    scene.service.fresh = scene.job.grants
    node = await scene.run_one(limits=replace(QUICK, outage=0.0))  # whatever it took was longer
    await scene.trains(node)
    access.close()

    assert access.over


def _troubles(node: ScriptedNode) -> list[Trouble]:
    return [t for h in node.heartbeats for t in h.troubles]


async def test_memory_that_ran_out_is_told_apart_from_other_errors(scene: Scene) -> None:
    scene.modes["one"] = "no memory"
    scene.job.processes_per_node = 2
    node = await scene.run_one()
    await scene.until(lambda: node.has_reported(NodePhase.FAILED, 1))
    heartbeat = node.last_heartbeat
    scene.modes["one"] = "crash"
    await scene.generation(node, number=2)
    await scene.until(lambda: node.has_reported(NodePhase.FAILED, 2))

    assert heartbeat.out_of_memory
    first, second, *_ = heartbeat.error.splitlines()
    assert first.startswith("memory ran out on rank 1 with micro-batch 2: CUDA out of memory.")
    assert second.startswith("ranks [0, 1] ended without a result")
    assert not node.last_heartbeat.out_of_memory


async def test_what_a_run_without_a_second_try_has_saved_is_committed_however_long_it_takes(
    scene: Scene,
) -> None:
    node = await scene.run_one("wrong", limits=replace(QUICK, uploads_after_kill=0.0))
    await scene.until(lambda: node.has_reported(NodePhase.FAILED, 1))

    assert node.last_heartbeat.non_retryable
    assert node.last_heartbeat.error == "verification failed: the scale is wrong"
    assert [c.step for c in scene.job.head().checkpoints] == [10]
