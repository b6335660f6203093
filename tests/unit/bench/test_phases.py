"""Phase of a job, from the attempt's state and its machines' disks."""

import json
import os
from pathlib import Path

import pytest

from bench.recovery.observed import disk
from bench.recovery.observed.cluster import Snapshot, SnapshotAttempt, SnapshotScaleSet, Vm
from bench.recovery.phases import phase_of, situation
from bench.recovery.plan import Phase
from contract.choices import Engine

ROW = {"checkpoint": {"step": 20, "path": "checkpoints/step-00000020-aa"}}


def attempt(state: str) -> SnapshotAttempt:
    return SnapshotAttempt(id="a1", job="j", number=1, state=state, created_at=0.0)


@pytest.fixture
def vm(tmp_path: Path) -> Vm:
    work = tmp_path / "fs" / "mnt" / "rekindle"
    work.mkdir(parents=True)
    return Vm(
        scale_set="rk-a1", instance_id="0", vm_id="v", state="running", pid=7, folder=tmp_path
    )


def begin_run(vm: Vm, *, stepped: bool) -> Path:
    folder = vm.work / "gen-0003"
    (folder / "outbox").mkdir(parents=True)
    (folder / "generation.json").write_text(json.dumps(ROW))
    (folder / "progress").write_text("20")
    if stepped:
        (folder / "metrics.jsonl").write_text('{"step": 21, "at": 100.5}\n')
        (folder / "progress").write_text("21")
    return folder


def phase(vm: Vm, state: str = "running") -> Phase | None:
    return phase_of(attempt(state), [disk.newest_run(vm.work)])


@pytest.mark.parametrize("state", ["pending", "provisioning"])
def test_while_the_scale_set_is_made_it_is_create(vm: Vm, state: str) -> None:
    assert phase(vm, state) is Phase.CREATE


def test_machines_without_a_generation_boot(vm: Vm) -> None:
    assert phase(vm, "starting") is Phase.BOOT


def test_a_generation_without_a_step_loads(vm: Vm) -> None:
    begin_run(vm, stepped=False)

    assert phase(vm) is Phase.LOAD


def test_a_half_written_first_line_is_no_step(vm: Vm) -> None:
    folder = begin_run(vm, stepped=False)
    (folder / "metrics.jsonl").write_text('{"step": 21, ')

    assert phase(vm) is Phase.LOAD


def test_after_its_first_step_it_trains(vm: Vm) -> None:
    begin_run(vm, stepped=True)

    assert phase(vm) is Phase.STEP


def test_a_save_without_the_ranks_record_is_being_written(vm: Vm) -> None:
    save = begin_run(vm, stepped=True) / "outbox" / "checkpoints-step-00000021-aa"
    save.mkdir()
    (save / "rank-00000.safetensors").write_bytes(b"")

    assert phase(vm) is Phase.SAVE


def test_a_save_with_the_ranks_record_is_being_committed(vm: Vm) -> None:
    save = begin_run(vm, stepped=True) / "outbox" / "checkpoints-step-00000021-aa"
    save.mkdir()
    (save / "rank-00000.json").write_text("{}")

    assert phase(vm) is Phase.COMMIT
    (found,) = disk.saves(save.parents[1])
    assert found.path == "checkpoints/step-00000021-aa"


def test_without_machines_it_is_between_two_phases() -> None:
    assert phase_of(attempt("running"), []) is None
    assert phase_of(attempt("terminating"), []) is None


def test_an_old_scale_set_is_being_deleted_while_the_next_one_is_made(vm: Vm) -> None:
    old = SnapshotScaleSet(name="rk-a1", job="j", attempt="a1", state="Succeeded", created_at=0.0)
    attempts = {
        "a1": attempt("terminating"),
        "a2": SnapshotAttempt(id="a2", job="j", number=2, state="provisioning", created_at=1.0),
    }
    seen = Snapshot(at=2.0, sets=[old], vms=[vm], attempts=attempts)
    now = situation(seen, "j", "recovering")

    assert now.deleting
    assert now.phase is Phase.CREATE


def test_a_node_of_azure_ml_works_in_the_folder_of_its_jobs_newest_start(tmp_path: Path) -> None:
    node = Vm(
        scale_set="rk-a1-0f", instance_id="0", vm_id="v", state="running", pid=7, folder=tmp_path
    )
    for number in (1, 2):
        folder = tmp_path / "azureml" / f"guid-{number}" / "rekindle"
        folder.mkdir(parents=True)
        os.utime(folder, (number, number))
    cluster = SnapshotScaleSet(
        name="rk-a1",
        job="j",
        attempt="a1",
        state="Succeeded",
        created_at=0.0,
        engine=Engine.AZUREML,
    )
    seen = Snapshot(at=2.0, sets=[cluster], vms=[node], attempts={"a1": attempt("running")})

    assert node.in_azureml
    assert seen.machines("a1") == [node]
    assert node.work == tmp_path / "azureml" / "guid-2" / "rekindle"


def test_what_lies_behind_a_training_job_does_not_come_back_by_itself(vm: Vm) -> None:
    begin_run(vm, stepped=True)
    held = SnapshotScaleSet(name="rk-a1", job="j", attempt="a1", state="Succeeded", created_at=0.0)
    seen = Snapshot(at=2.0, sets=[held], vms=[vm], attempts={"a1": attempt("running")})
    now = situation(seen, "j", "running")

    assert (now.generation, now.step, now.deleting) == (3, 21, False)
    assert now.is_past(Phase.BOOT)
    assert not now.is_past(Phase.SAVE)
