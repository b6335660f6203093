"""The whole node protocol, both sides, over a wire that loses, doubles, delays and reorders.

Whatever is killed, evicted, reimaged or late: never two committing generations, never a torn
checkpoint loaded, never two trainers where one may be, and always an end. Each planted fault
shows that the promise it breaks is really watched.
"""

from collections.abc import Callable, Iterator
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.domain.lifecycle.generation import HaltGeneration, next_membership
from service.domain.lifecycle.node import apply_registration, node_view
from tests.unit.contract_judge import Violation
from tests.unit.contract_rules import FAULTS, Rules
from tests.unit.contract_world import World
from trainer.contract import (
    HEAD,
    MANIFEST,
    Committed,
    DirectiveKind,
    FileEntry,
    Manifest,
    NodePhase,
    Registration,
)

LIVES = 2_400
BLOCKS = 8
LIVES_PER_FAULT = 800


@pytest.mark.parametrize(
    "block", [pytest.param(n, marks=[pytest.mark.long] if n else []) for n in range(BLOCKS)]
)
def test_no_life_breaks_a_promise_and_every_job_comes_to_an_end(
    block: int, record_property: Callable[[str, object], None]
) -> None:
    lived: list[int] = []

    @settings(
        max_examples=LIVES // BLOCKS,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        seed=st.integers(0, 2**40),
        events=st.integers(400, 1600),
        elastic=st.booleans(),
        list_is_true=st.booleans(),
    )
    def life(seed: int, events: int, elastic: bool, list_is_true: bool) -> None:
        rng = Random(seed * BLOCKS + block)
        world = World(rng, elastic=elastic, list_is_true=list_is_true)
        world.live(events)
        world.calm()
        assert world.blob.head()[1].model is not None
        lived.append(world.events)

    life()

    record_property("lives", len(lived))
    record_property("events", sum(lived))
    assert len(lived) >= LIVES // BLOCKS


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str) -> None:
    rules, promises = FAULTS[fault]

    broken = next((b for b in _broken_promises(rules) if b in promises), None)

    assert broken, f"{LIVES_PER_FAULT} lives and none broke {promises}"


def _broken_promises(rules: Rules) -> Iterator[str]:
    for seed in range(LIVES_PER_FAULT):
        rng = Random(seed)
        # Where the list of instances lies, the fence on HEAD is all that is left.
        world = World(rng, rules, elastic=seed % 4 == 3, list_is_true=seed % 2 == 0)
        try:
            world.live(rng.randrange(400, 1600))
            world.calm()
        except Violation as violation:
            yield violation.rule


# --- hazards that the simulation has found, each by its name -------------------------------------


def _world(rules: Rules | None = None) -> World:
    """No faults, nodes registered and heard, nothing opened yet."""
    world = World(Random(1), rules)
    world.wire.faulty = False
    for _ in range(8):
        world.turns()
    return world


def _run(worker: Iterator[None], steps: int = 1_000) -> None:
    for _ in range(steps):
        if next(worker, "ended") == "ended":
            return


def _to_step(world: World, step: int) -> None:
    for _ in range(300):
        world.turns()
        world.look()
        if any(vm.trainer and vm.trainer.step >= step for vm in world.vms):
            return
    raise AssertionError(f"step {step} was never reached")


def test_a_worker_that_comes_late_neither_opens_nor_fences_a_second_generation() -> None:
    world = _world()
    late = world.service.reconcile("att-1")
    _run(late, 4)  # it has decided to open the first generation
    world.look()  # another worker does
    _to_step(world, 1)

    _run(late)
    world.turns()

    assert sorted(world.service.rows) == [1]
    assert world.blob.head()[1].generation == 1


def test_asking_for_the_number_after_the_decision_lets_a_late_worker_fence_a_live_generation() -> (
    None
):
    world = _world(Rules(number_late=True))
    late = world.service.reconcile("att-1")
    _run(late, 4)
    world.look()
    _to_step(world, 1)

    for _ in range(3):
        next(late, None)
        world.turns()

    assert world.blob.head()[1].generation == 2, "the running generation 1 cannot commit any more"


def test_a_model_whose_commit_arrives_after_the_look_is_not_trained_again() -> None:
    world = _world()
    worker = world.service.reconcile("att-1")
    _run(worker, 4)  # HEAD was read, the next generation decided upon
    _commit_model(world)

    for _ in range(20):
        next(worker, None)
        world.turns()

    assert world.service.rows == {}


def test_a_reimaged_node_is_not_started_again_in_the_same_generation() -> None:
    world = _world()
    _to_step(world, 2)
    world.vms[0].lose_disk()

    world.calm()

    assert len(world.service.rows) == 2
    assert ("vm-1", 1) in world.judge.launched


def test_a_supervisor_killed_between_its_disk_and_its_effect_never_starts_the_trainer_twice() -> (
    None
):
    world = _world()
    vm = world.vms[0]
    while vm.disk.phase is not NodePhase.RUNNING:
        world.look()
        world.turns()
    vm.kill_supervisor()

    world.calm()

    assert world.service.finished


def test_saves_that_lay_whole_when_the_supervisors_were_killed_are_committed() -> None:
    world = _world()
    _to_step(world, 2)
    trainers = [vm.trainer for vm in world.vms if vm.trainer]
    for trainer in trainers:
        trainer.todo.clear()
        trainer.save("periodic")
        while trainer.todo:
            trainer.act()
    for vm in world.vms:
        vm.kill_supervisor()

    for _ in range(40):
        world.turns()

    head = world.blob.head()[1]
    assert head.newest
    assert (head.newest.generation, head.newest.step) == (1, trainers[0].step)
    assert {vm.disk.phase for vm in world.vms} == {NodePhase.STOPPED}


def test_the_registration_of_an_older_boot_that_comes_late_settles_nothing() -> None:
    world = _world()
    _to_step(world, 1)
    record = next(r for r in world.service.nodes.values() if r.vm_id == "vm-1")
    old = _registration(boot_id="a boot long dead")

    after = apply_registration(record, old, 1)

    assert (after.phase, after.generation) == (NodePhase.RUNNING, 1)
    assert not node_view(after, present=True).settled(1)
    assert after.directive_kind is DirectiveKind.STOP


def test_members_are_told_to_stop_when_one_of_them_has_restarted() -> None:
    world = _world()
    _to_step(world, 1)
    records = dict(world.service.nodes)
    first = next(r for r in records.values() if r.vm_id == "vm-1")
    records[first.node_id] = apply_registration(first, _registration(boot_id="new"), 1)

    step = next_membership(
        world.service.rows[1], [node_view(r, present=True) for r in records.values()], len(records)
    )

    assert isinstance(step, HaltGeneration)
    assert step.kind is DirectiveKind.STOP


def test_garbage_is_collected_while_an_overtaken_generation_still_uploads() -> None:
    world = _world()
    _to_step(world, 3)
    world.service.give_up("att-1")
    world._new_attempt()

    world.calm()

    head = world.blob.head()[1]
    named = {c.path for c in (*head.checkpoints, head.model) if c}
    world.collect_garbage()
    folders = {name.rsplit("/", 1)[0] for name in world.blob.blobs if "/" in name}
    assert {f for f in folders if f.endswith("-g1")} <= named


def _registration(boot_id: str) -> Registration:
    return Registration(
        protocol=1,
        attempt_id="att-1",
        vm_id="vm-1",
        boot_id=boot_id,
        name="vm-1",
        address="vm-1",
        gpus=1,
    )


def _commit_model(world: World) -> None:
    path = "models/step-00000008-g0"
    world.blob.put(f"{path}/shard-0", (0, 8, 0))
    shard = world.blob.read(f"{path}/shard-0")
    assert shard
    manifest = Manifest(
        step=8,
        consumed_samples=8,
        world_size=2,
        generation=0,
        kind="final",
        files=(FileEntry(name="shard-0", size=1, etag=shard[0], crc64nvme=""),),
        run_spec_sha256="",
        saved_at=0.0,
    )
    world.blob.put(f"{path}/{MANIFEST}", manifest)
    etag, head = world.blob.head()
    entry = Committed(
        path=path,
        step=8,
        consumed_samples=8,
        world_size=2,
        generation=0,
        kind="final",
        size=1,
        manifest_sha256="",
        committed_at=0.0,
    )
    assert world.blob.put(HEAD, head.with_model(entry), if_match=etag)
