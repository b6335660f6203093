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


def begin_run(vm: Vm) -> Path:
    folder = vm.work / "gen-0003"
    (folder / "outbox").mkdir(parents=True)
    (folder / "generation.json").write_text(json.dumps(ROW))
    (folder / "progress").write_text("20")
    return folder


def take_a_step(folder: Path) -> None:
    (folder / "metrics.jsonl").write_text('{"step": 21, "at": 100.5}\n')
    (folder / "progress").write_text("21")


def phase(vm: Vm, state: str = "running") -> Phase | None:
    return phase_of(attempt(state), [disk.newest_run(vm.work)])


def test_a_phase_is_told_by_what_lies_on_the_disk_of_machines(vm: Vm) -> None:
    assert phase(vm, "provisioning") is Phase.CREATE
    assert phase(vm, "starting") is Phase.BOOT

    run = begin_run(vm)
    assert phase(vm) is Phase.LOAD
    (run / "metrics.jsonl").write_text('{"step": 21, ')
    assert phase(vm) is Phase.LOAD, "half a line is no step"
    take_a_step(run)
    assert phase(vm) is Phase.STEP

    save = run / "outbox" / "checkpoints-step-00000021-aa"
    save.mkdir()
    (save / "rank-00000.safetensors").write_bytes(b"")
    assert phase(vm) is Phase.SAVE
    (save / "rank-00000.json").write_text("{}")
    assert phase(vm) is Phase.COMMIT
    assert [entry.path for entry in disk.saves(run)] == ["checkpoints/step-00000021-aa"]
    assert phase_of(attempt("running"), []) is None
    assert phase_of(attempt("terminating"), []) is None


def test_an_old_scale_set_is_being_deleted_while_the_next_one_is_made(vm: Vm) -> None:
    old_set = SnapshotScaleSet(
        name="rk-a1", job="j", attempt="a1", state="Succeeded", created_at=0.0
    )
    attempts = {
        "a1": attempt("terminating"),
        "a2": SnapshotAttempt(id="a2", job="j", number=2, state="provisioning", created_at=1.0),
    }
    snapshot = Snapshot(at=2.0, sets=[old_set], vms=[vm], attempts=attempts)
    now = situation(snapshot, "j", "recovering")

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
    snapshot = Snapshot(at=2.0, sets=[cluster], vms=[node], attempts={"a1": attempt("running")})

    assert node.in_azureml
    assert snapshot.machines("a1") == [node]
    assert node.work == tmp_path / "azureml" / "guid-2" / "rekindle"


def test_what_lies_behind_a_training_job_does_not_come_back_by_itself(vm: Vm) -> None:
    take_a_step(begin_run(vm))
    scale_set = SnapshotScaleSet(
        name="rk-a1", job="j", attempt="a1", state="Succeeded", created_at=0.0
    )
    snapshot = Snapshot(at=2.0, sets=[scale_set], vms=[vm], attempts={"a1": attempt("running")})
    now = situation(snapshot, "j", "running")

    assert (now.generation, now.step, now.deleting) == (3, 21, False)
    assert now.is_past(Phase.BOOT)
    assert not now.is_past(Phase.SAVE)
