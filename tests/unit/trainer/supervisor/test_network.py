"""Which network a node's ranks are told to use, and how fast it must be."""

import multiprocessing
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import pytest
import torch
import torch.distributed as dist

from service.domain.performance.vm_catalogue import SKUS
from tests.unit.attempts.attempt_facts import GENERATION
from trainer.process.bandwidth_check import (
    ExpectedBandwidth,
    SlowMachineError,
    bus_bandwidth,
    require_bandwidth,
)
from trainer.rundir import RunDir
from trainer.supervisor.machine import network


def test_the_interface_is_the_one_that_carries_the_address() -> None:
    carried = {
        candidate.address: name
        for name, addresses in psutil.net_if_addrs().items()
        for candidate in addresses
        if candidate.family.name == "AF_INET"
    }

    assert {address: network.find_interface(address) for address in carried} == carried
    assert network.find_interface("127.77.0.9") == carried["127.0.0.1"], "an emulated machine's"


def test_nccl_uses_infiniband_where_a_size_has_it_and_no_rdma_elsewhere() -> None:
    for sku in SKUS:
        chosen = network.nccl_settings(sku.vm_size.upper())

        assert chosen.get("NCCL_IB_HCA") == ("mlx5_ib" if sku.infiniband else None), sku
        assert chosen.get("NCCL_IB_DISABLE") == (None if sku.infiniband else "1"), sku


def test_a_topology_file_is_named_where_the_image_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    present, absent = tmp_path / "topo.xml", tmp_path / "graph.xml"
    present.touch()
    size = {"NCCL_TOPO_FILE": str(present), "NCCL_GRAPH_FILE": str(absent)}
    monkeypatch.setattr(network, "BY_VM_SIZE", {"a": size})

    assert network.nccl_settings("A") == {"NCCL_DEBUG": "WARN", "NCCL_TOPO_FILE": str(present)}


def test_a_jobs_settings_come_before_those_of_the_size_but_not_before_the_interface() -> None:
    settings = ("NCCL_IB_DISABLE=0", "NCCL_DEBUG=INFO", "NCCL_SOCKET_IFNAME=ib0", "LD_PRELOAD=x")

    chosen = network.network_settings("127.0.0.1", "Standard_NC40ads_H100_v5", settings)

    assert (chosen["NCCL_IB_DISABLE"], chosen["NCCL_DEBUG"]) == ("0", "INFO")
    assert chosen["NCCL_SOCKET_IFNAME"].startswith("=")
    assert "LD_PRELOAD" not in chosen


def test_a_node_tells_its_rdma_devices_beside_what_was_chosen(tmp_path: Path) -> None:
    for name in ("mlx5_ib1", "mlx5_an0", "mlx5_ib0"):
        (tmp_path / name).mkdir()

    report = network.network_report("127.0.0.1", "Standard_ND96isr_H200_v5", tmp_path)

    assert {"NCCL_IB_HCA=mlx5_ib", "rdma_devices=mlx5_an0,mlx5_ib0,mlx5_ib1"} <= set(report)


CPU = torch.device("cpu")
NEVER = 1e9  # GB/s
TWO_BY_TWO = replace(GENERATION, processes_per_node=2)
FOLDER = RunDir(Path("/nowhere"))


def rank_of_four(
    rank: int, folder: Path, expected: ExpectedBandwidth, connection: Connection
) -> None:
    """Be one of two ranks on one of two machines; answers what came of it."""
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), 4)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=4)
    before = torch.get_rng_state()
    try:
        message = require_bandwidth(
            RunDir(folder / f"machine-{rank // 2}"), TWO_BY_TWO, CPU, expected
        )
    except SlowMachineError as e:
        message = f"slow: {e}"
    connection.send((message, torch.equal(before, torch.get_rng_state())))


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

    assert [message.partition(":")[0] for message, _ in ends] == ["slow"] * 4
    reported = RunDir(tmp_path / "machine-1").unhealthy(2).read_text()
    assert reported.endswith("GB/s, 1000000000 are usual: an NVLink may be down")


def test_machines_that_are_slow_to_each_other_are_told_the_user_on_every_rank(
    tmp_path: Path,
) -> None:
    ends = world_of_four(tmp_path, ExpectedBandwidth(between=NEVER))

    assert all(message.startswith("All-reduce between the job's machines") for message, _ in ends)


@pytest.mark.usefixtures("world_of_one")
def test_a_rank_alone_measures_nothing() -> None:
    alone = replace(GENERATION, members=GENERATION.members[:1])

    assert require_bandwidth(FOLDER, alone, CPU, ExpectedBandwidth(inside=NEVER)) == ""
    assert bus_bandwidth(None, CPU) == 0.0
