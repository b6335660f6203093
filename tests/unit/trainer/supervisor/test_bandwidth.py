"""The all-reduce before training: every rank decides alike, and training does not notice it."""

import multiprocessing
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tests.unit.attempts.attempt_facts import GENERATION
from trainer.process.bandwidth_check import (
    ExpectedBandwidth,
    SlowMachineError,
    bus_bandwidth,
    require_bandwidth,
)
from trainer.rundir import RunDir

CPU = torch.device("cpu")
NEVER = 1e9  # GB/s
TWO_BY_TWO = replace(GENERATION, processes_per_node=2)
FOLDER = RunDir(Path("/nowhere"))


def rank_of_four(rank: int, folder: Path, expected: ExpectedBandwidth, answer: Connection) -> None:
    """Be one of two ranks on one of two machines; answers what came of it."""
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), 4)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=4)
    before = torch.get_rng_state()
    try:
        said = require_bandwidth(RunDir(folder / f"machine-{rank // 2}"), TWO_BY_TWO, CPU, expected)
    except SlowMachineError as e:
        said = f"slow: {e}"
    answer.send((said, torch.equal(before, torch.get_rng_state())))


def world_of_four(folder: Path, expected: ExpectedBandwidth) -> list[tuple[str, bool]]:
    """Return each rank's result and whether its random numbers stayed as they were."""
    fork = multiprocessing.get_context("fork")  # torch need not be imported four times
    pipes = [fork.Pipe(duplex=False) for _ in range(4)]
    ranks = [
        fork.Process(target=rank_of_four, args=(rank, folder, expected, send), daemon=True)
        for rank, (_, send) in enumerate(pipes)
    ]
    for process in ranks:
        process.start()
    try:
        assert all(receive.poll(60) for receive, _ in pipes)
        return [receive.recv() for receive, _ in pipes]
    finally:
        for process in ranks:
            process.kill()
            process.join()


def test_without_a_usual_speed_any_will_do_and_no_random_number_is_drawn(tmp_path: Path) -> None:
    assert world_of_four(tmp_path, ExpectedBandwidth()) == [("", True)] * 4
    assert not list(tmp_path.glob("machine-*"))


def test_a_slow_machine_is_named_to_its_supervisor_and_every_rank_ends(tmp_path: Path) -> None:
    ends = world_of_four(tmp_path, ExpectedBandwidth(inside=NEVER))

    assert [said.partition(":")[0] for said, _ in ends] == ["slow"] * 4
    told = RunDir(tmp_path / "machine-1").unhealthy(2).read_text()
    assert told.endswith("GB/s, 1000000000 are usual: an NVLink may be down")


def test_machines_that_are_slow_to_each_other_are_told_the_user_on_every_rank(
    tmp_path: Path,
) -> None:
    ends = world_of_four(tmp_path, ExpectedBandwidth(between=NEVER))

    assert all(said.startswith("All-reduce between the job's machines") for said, _ in ends)


@pytest.mark.usefixtures("world_of_one")
def test_a_rank_alone_measures_nothing() -> None:
    alone = replace(GENERATION, members=GENERATION.members[:1])

    assert require_bandwidth(FOLDER, alone, CPU, ExpectedBandwidth(inside=NEVER)) == ""
    assert bus_bandwidth(None, CPU) == 0.0
