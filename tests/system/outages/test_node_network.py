"""Machines of one subnet: who reaches whom through a node's firewall, and how ranks meet.

Real network namespaces and the real rules: needs root, `ip` and `iptables`. What the rules say and
when they are asked for: `tests/unit/trainer/supervisor/test_node_firewall.py`. Which interface is
chosen: `tests/unit/trainer/supervisor/test_network.py`.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.nodes.subnet import (
    METADATA,
    NEEDS_ROOT,
    OTHER,
    SUPERVISOR,
    Machine,
    close,
    generation_of,
    machines,
)
from tests.waiting import until
from trainer.supervisor.machine.firewall import admit_members

pytestmark = [pytest.mark.long, pytest.mark.timeout(400), NEEDS_ROOT]


@pytest.fixture
def subnet(tmp_path: Path) -> Iterator[list[Machine]]:
    """Three machines, each with a node's firewall, and the metadata service."""
    with machines(tmp_path, metadata_service=True) as nodes:
        for machine in nodes[:3]:
            close(machine)
        yield nodes


async def test_only_members_reach_the_store_and_the_ranks(
    subnet: list[Machine], tmp_path: Path
) -> None:
    first, second, neighbour, _ = subnet
    generation = generation_of(first, second)

    await _meet(tmp_path, first, second)

    assert generation.master_port in first.listening()
    for machine, peer in ((first, second), (second, first)):
        ports = machine.listening()
        assert ports
        assert peer.reaches(machine.address, *ports) == set(ports)
        assert neighbour.reaches(machine.address, *ports) == set()

    await admit_members(replace(generation_of(first, neighbour), number=2), first.door)

    assert neighbour.reaches(first.address, generation.master_port)
    assert not second.reaches(first.address, generation.master_port)


async def test_only_the_supervisor_reaches_the_metadata_service(subnet: list[Machine]) -> None:
    node, azure = subnet[0], subnet[3]
    azure.start(sys.executable, "-m", "http.server", "80", "--bind", METADATA)

    async def serves() -> bool:
        return 80 in azure.listening()

    await until(serves, bool)
    reachable = {user: node.reaches(METADATA, 80, user=user) for user in (0, SUPERVISOR, OTHER)}

    assert reachable == {0: {80}, SUPERVISOR: {80}, OTHER: set()}


@pytest.mark.parametrize(
    "resolved",
    [
        pytest.param("", id="no address"),
        pytest.param("127.0.1.1", id="loopback"),
        pytest.param("10.77.0.6", id="another machine"),
    ],
)
async def test_ranks_meet_whatever_the_host_names_resolve_to(tmp_path: Path, resolved: str) -> None:
    with machines(tmp_path) as (first, second, _):
        for machine in (first, second):
            machine.resolve_itself_to(resolved)
        await _meet(tmp_path, first, second)


async def _meet(folder: Path, *members: Machine) -> None:
    """Start a rank on each; return once all of them have summed."""
    for machine in members:
        machine.start_ranks(generation_of(*members), folder / f"gen-{machine.name}")

    async def sums() -> list[str]:
        return _sums(folder)

    await until(
        sums, lambda printed: printed == [f"{len(members):.1f}"] * len(members), deadline=240
    )


def _sums(folder: Path) -> list[str]:
    return [met.read_text() for met in folder.glob("gen-*/met-*")]
