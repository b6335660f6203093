"""Supervisors' whole lives: real processes, real Azurite, real HTTP, a stand-in trainer."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.nodes.scripted_service import ScriptedNode
from tests.nodes.supervised import ATTEMPT, QUICK, Scene
from trainer.contract import DirectiveKind, NodePhase, StepMetrics, log_path
from trainer.supervisor.clock import NodeLimits
from trainer.supervisor.control.launch import find_marked_processes

STOP = DirectiveKind.CHECKPOINT_AND_STOP


async def test_two_nodes_train_stop_resume_and_finish(scene: Scene) -> None:
    scene.job.processes_per_node = 2
    first_node, second_node = scene.service.add("one"), scene.service.add("two")
    scene.service.not_seen_yet = 2  # the cloud's list is late
    scene.start(first_node)
    scene.start(second_node)
    await scene.generation(first_node, second_node)
    await scene.trains(first_node, second_node)
    for node in (first_node, second_node):
        await scene.service.direct(node, STOP, number=1)
    await scene.until(lambda: _have_all_reported(NodePhase.STOPPED, 1, first_node, second_node))
    stopped = scene.job.newest()
    scene.modes |= {"one": "finish", "two": "finish"}
    await scene.generation(first_node, second_node, number=2)
    await scene.until(lambda: _have_all_reported(NodePhase.FINISHED, 2, first_node, second_node))

    assert (stopped.step, stopped.generation, stopped.world_size) == (10, 1, 4)
    head = scene.job.head()
    assert [c.step for c in head.checkpoints] == [10, 20]
    assert head.model is not None
    assert (head.model.step, head.model.kind) == (20, "final")
    assert head.model.parameters_sha256 == "ab" * 32
    assert "starts at step 0" in scene.job.text(log_path(ATTEMPT, 3))
    assert "starts at step 10" in scene.job.text(log_path(ATTEMPT, 3))
    spans = {s.name for h in first_node.heartbeats for s in h.spans}
    assert {"join", "prefetch", "wait_for_nodes"} <= spans
    assert {"fetch_inputs", "fetch_checkpoint", "load"} <= spans
    registered = first_node.registrations[0]
    assert registered.spans[0].name == "start_supervisor"
    assert registered.vm_size == "Standard_D2s_v5"
    assert "NCCL_DEBUG=WARN" in registered.network


async def test_a_noticed_eviction_loses_nothing(scene: Scene) -> None:
    node, _ = await _training(scene)
    node.event = "event-1"
    await scene.until(lambda: node.acknowledged)

    assert scene.job.newest().step == 10
    sequence_numbers = [heartbeat.seq for heartbeat in node.heartbeats]
    assert sequence_numbers == [*range(1, len(sequence_numbers) + 1)], (
        "the service ignores what is not newer"
    )
    service_log = scene.service.happened
    order = ["one noticed", "one stopped 1", "one acknowledged"]
    assert sorted(order, key=service_log.index) == order
    assert scene.job.newest().committed_at > 0
    assert node.last_heartbeat.phase is NodePhase.STOPPED


async def test_a_stale_generation_is_abandoned(scene: Scene) -> None:
    node, work_folder = await _training(scene)
    node.refusals.append((409, "stale_generation"))
    await scene.until(lambda: node.has_reported(NodePhase.STOPPED, 1))

    assert scene.job.head().checkpoints == ()
    assert find_marked_processes(str(work_folder)) == []


async def test_a_stale_epoch_is_mended_by_registering_again(scene: Scene) -> None:
    node, _ = await _training(scene)
    node.refusals.append((409, "stale_epoch"))
    await scene.until(lambda: len(node.registrations) == 2)
    await scene.trains(node)

    assert len(node.boots) == 1


async def test_a_token_that_ran_out_is_mended_by_registering_again(scene: Scene) -> None:
    node, _ = await _training(scene)
    node.refusals += [(401, "invalid_token"), (403, "invalid_token")]
    await scene.until(lambda: len(node.registrations) >= 2 and not node.refusals)
    await scene.service.direct(node, STOP, number=1)
    await scene.until(lambda: node.has_reported(NodePhase.STOPPED, 1))

    assert scene.job.newest().step == 10


async def test_a_dismissed_node_leaves_without_a_trace(scene: Scene) -> None:
    node, work_folder = await _training(scene)
    node.refusals += [(410, "attempt_over")] * 9
    await scene.tasks["one"]

    assert find_marked_processes(str(work_folder)) == []
    assert scene.job.head().checkpoints == ()
    assert "generation 1 starts" in scene.job.text(log_path(ATTEMPT, 0))


async def test_a_node_that_hears_nothing_saves_at_its_stop_by(scene: Scene) -> None:
    scene.service.stop_in = 2.0
    node, _ = await _training(scene)
    scene.service.down = True
    await scene.until(lambda: scene.job.head().newest)
    scene.service.down = False
    await scene.until(lambda: node.has_reported(NodePhase.STOPPED, 1))

    assert [c.step for h in node.heartbeats for c in h.committed] == [10]


async def test_measurements_wait_out_an_outage(scene: Scene) -> None:
    node, _ = await _training(scene)
    scene.service.down = True
    measured_count = len(_measured(node))
    await scene.until(lambda: scene.progress("one") > measured_count + 20)
    scene.service.down = False
    await scene.until(lambda: len(_measured(node)) > measured_count + 20)

    steps = [m.step for m in _measured(node)]
    assert steps == list(range(1, len(steps) + 1))


async def test_a_save_that_lacks_a_peers_part_is_never_committed(scene: Scene) -> None:
    first_node, second_node = scene.service.add("one"), scene.service.add("two")
    for node in (first_node, second_node):
        scene.start(node, limits=replace(QUICK, peers=0.5))
    scene.modes["two"] = "torn"
    await scene.generation(first_node, second_node)
    await scene.trains(first_node, second_node)
    await scene.service.direct(second_node, STOP, number=1)
    await scene.until(lambda: _have_all_reported(NodePhase.STOPPED, 1, first_node, second_node))

    assert scene.job.head().checkpoints == ()
    assert any(n.endswith("rank-00000.json") for n in scene.job.names("checkpoints/"))


async def test_a_generation_that_head_does_not_name_is_not_started(scene: Scene) -> None:
    node = scene.service.add("one")
    work_folder = scene.start(node)
    generation = scene.job.open(1, [node])
    scene.job.write_head(replace(scene.job.head(), generation=2))
    await scene.service.direct(node, DirectiveKind.START, generation)
    await scene.until(lambda: node.has_reported(NodePhase.STOPPED, 1))

    assert "HEAD belongs to generation 2" in node.last_heartbeat.error
    assert not (work_folder / "gen-0001" / "logs").exists()


@pytest.mark.parametrize(
    ("kind", "save_seconds"), [(STOP, 0.3), (DirectiveKind.STOP, 600.0)], ids=["save", "kill"]
)
async def test_a_trainer_that_does_not_stop_in_time_or_shall_not_save_is_killed(
    scene: Scene, kind: DirectiveKind, save_seconds: float
) -> None:
    scene.modes["one"] = "orphan"
    node, work_folder = await _training(scene, replace(QUICK, save=save_seconds))
    await scene.until(lambda: len(find_marked_processes(str(work_folder))) == 2)
    await scene.service.direct(node, kind, number=1)
    await scene.until(lambda: node.has_reported(NodePhase.STOPPED, 1))

    assert find_marked_processes(str(work_folder)) == []


async def test_a_node_that_cannot_write_its_memory_starts_nothing_and_says_why(
    scene: Scene,
) -> None:
    node = scene.service.add("one")
    work_folder = scene.start(node)
    await scene.until(lambda: node.heartbeats)
    (work_folder / "node.json").unlink()
    (work_folder / "node.json").mkdir()  # as good as a full disk, also for root
    await scene.generation(node)
    await scene.until(lambda: node.has_reported(NodePhase.STOPPED, 1))

    assert "node.json could not be written" in node.last_heartbeat.error
    assert find_marked_processes(str(work_folder)) == []


async def test_grants_that_stay_refused_are_called_by_their_name_and_blame_no_trainer(
    scene: Scene,
) -> None:
    scene.service.grants = replace(scene.job.grants, job=_expired(scene))
    node = await scene.run_one(limits=replace(QUICK, outage=1.0))
    await scene.until(lambda: node.has_reported(NodePhase.STOPPED, 1))

    assert "fresh grants" in node.last_heartbeat.error
    scene.service.grants = scene.job.grants
    await scene.generation(node, number=2)
    await scene.trains(node)
    assert len(node.boots) == 1, "renewed grants need no new start"


async def test_grants_that_run_out_while_training_are_asked_for_again(scene: Scene) -> None:
    node, _ = await _training(scene)
    scene.service.fresh = replace(scene.job.grants, job=_expired(scene))
    await scene.service.direct(node, STOP, number=1)
    await scene.until(lambda: len(node.registrations) > 1)
    scene.service.fresh = None
    await scene.until(lambda: node.has_reported(NodePhase.STOPPED, 1))

    assert scene.job.newest().step == 10


async def test_a_node_that_is_dismissed_when_it_asks_for_grants_leaves_in_peace(
    scene: Scene,
) -> None:
    scene.service.grants = replace(scene.job.grants, job=_expired(scene))
    node = scene.service.add("one")
    work_folder = scene.start(node)
    await scene.until(lambda: node.heartbeats)
    node.dismissed = True  # of its registrations alone: heartbeats may be on their way
    await scene.generation(node)
    await scene.tasks["one"]

    assert find_marked_processes(str(work_folder)) == []


async def test_a_generation_waits_for_a_store_that_is_away(scene: Scene) -> None:
    away = replace(scene.job.grants, job="http://127.0.0.1:9/account/job?sig=none")
    scene.service.grants = away
    node = await scene.run_one()
    await scene.until(lambda: node.has_reported(NodePhase.RUNNING, 1))
    scene.service.fresh = scene.job.grants
    await scene.trains(node)

    assert scene.progress("one") > 0


async def test_only_what_a_generation_needs_is_fetched_again(scene: Scene) -> None:
    node, work_folder = await _training(scene)
    inputs = sorted((work_folder / "inputs").rglob("*.*"))
    before = [p.stat().st_ino for p in inputs]
    await scene.service.direct(node, STOP, number=1)
    await scene.until(lambda: node.has_reported(NodePhase.STOPPED, 1))
    await scene.generation(node, number=2)
    await scene.until(
        lambda: node.has_reported(NodePhase.RUNNING, 2) and scene.progress("one") > 10
    )

    assert [p.stat().st_ino for p in inputs] == before
    await scene.until(lambda: not scene.checkpoint_files("one"))
    assert not (work_folder / "gen-0001").exists()


async def _training(scene: Scene, limits: NodeLimits = QUICK) -> tuple[ScriptedNode, Path]:
    """One node that trains in generation 1, and its work folder."""
    node = await scene.run_one(limits=limits)
    work_folder = scene.folder / "one"
    await scene.trains(node)
    return node, work_folder


def _expired(scene: Scene) -> str:
    return scene.job.azurite.container_sas(scene.job.container.container_name, hours=-1.0)


def _have_all_reported(phase: NodePhase, generation: int, *nodes: ScriptedNode) -> bool:
    return all(n.has_reported(phase, generation) for n in nodes)


def _measured(node: ScriptedNode) -> list[StepMetrics]:
    return [m for h in node.heartbeats for m in h.metrics]
