"""Which network a node's ranks are told to use."""

from pathlib import Path

import psutil
import pytest

from service.domain.performance.vm_catalogue import SKUS
from trainer.supervisor.machine import network


def test_the_interface_is_the_one_that_carries_the_address() -> None:
    carried = {
        one.address: name
        for name, addresses in psutil.net_if_addrs().items()
        for one in addresses
        if one.family.name == "AF_INET"
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
    there, gone = tmp_path / "topo.xml", tmp_path / "graph.xml"
    there.touch()
    size = {"NCCL_TOPO_FILE": str(there), "NCCL_GRAPH_FILE": str(gone)}
    monkeypatch.setattr(network, "BY_VM_SIZE", {"a": size})

    assert network.nccl_settings("A") == {"NCCL_DEBUG": "WARN", "NCCL_TOPO_FILE": str(there)}


def test_a_jobs_settings_come_before_those_of_the_size_but_not_before_the_interface() -> None:
    asked = ("NCCL_IB_DISABLE=0", "NCCL_DEBUG=INFO", "NCCL_SOCKET_IFNAME=ib0", "LD_PRELOAD=x")

    chosen = network.network_settings("127.0.0.1", "Standard_NC40ads_H100_v5", asked)

    assert (chosen["NCCL_IB_DISABLE"], chosen["NCCL_DEBUG"]) == ("0", "INFO")
    assert chosen["NCCL_SOCKET_IFNAME"].startswith("=")
    assert "LD_PRELOAD" not in chosen


def test_a_node_tells_its_rdma_devices_beside_what_was_chosen(tmp_path: Path) -> None:
    for name in ("mlx5_ib1", "mlx5_an0", "mlx5_ib0"):
        (tmp_path / name).mkdir()

    told = network.network_report("127.0.0.1", "Standard_ND96isr_H200_v5", tmp_path)

    assert {"NCCL_IB_HCA=mlx5_ib", "rdma_devices=mlx5_an0,mlx5_ib0,mlx5_ib1"} <= set(told)
