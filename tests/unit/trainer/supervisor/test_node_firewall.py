"""The firewall's hook on a node, with stand-ins for iptables: who is admitted, and when."""

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from service.cloud import node_firewall
from service.cloud.cloud_init import USER
from tests.nodes.supervised import ALONE
from trainer.contract import Member
from trainer.supervisor.machine import firewall
from trainer.supervisor.machine.firewall import FirewallError, admit_members

MEMBERS = (
    Member(node_id="a", vm_id="a", address="10.1.0.5", node_rank=0),
    Member(node_id="b", vm_id="b", address="10.1.0.4", node_rank=1),
)
GENERATION = replace(ALONE, number=3, members=MEMBERS)
# Notes what it is called with and given; fails while FOLDER/broken is there.
STAND_IN = """#!/bin/sh
[ ! -e {folder}/broken ] || exit 1
echo "${{0##*/}} $*" >>{folder}/calls
case $0 in *-restore) cat >>{folder}/calls ;; esac
case $* in *-C*) exit 1 ;; esac
"""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Make a folder with the firewall's script and programs that only record their calls."""
    for name in ("iptables", "ip6tables"):
        for program in (name, f"{name}-restore"):
            (tmp_path / program).write_text(STAND_IN.format(folder=tmp_path))
            (tmp_path / program).chmod(0o755)
    (tmp_path / "chown").write_text("#!/bin/sh\n")
    (tmp_path / "chown").chmod(0o755)
    script = node_firewall.SCRIPT.format(door=tmp_path / "door", user=10001)
    (tmp_path / "firewall").write_text(script)
    subprocess.run(["sh", tmp_path / "firewall", "setup"], env=_environment(tmp_path), check=True)
    return tmp_path


@pytest.fixture
def watched(machine: Path) -> Iterator[Path]:
    """Yield the machine while the firewall's hook runs."""
    with _hook(machine):
        yield machine


def test_the_supervisor_and_the_machine_agree_on_the_door() -> None:
    assert str(firewall.FIREWALL_FOLDER) == node_firewall.DOOR
    assert f'"$door/{firewall.REQUESTED}"' in node_firewall.SCRIPT
    assert f'"$door/{firewall.APPLIED}"' in node_firewall.SCRIPT


def test_all_that_is_not_let_in_is_dropped_and_set_up_once(machine: Path) -> None:
    calls = (machine / "calls").read_text().splitlines()

    assert calls[calls.index("-A REKINDLE-IN -j REKINDLE-MEMBERS") + 1] == "-A REKINDLE-IN -j DROP"
    assert "iptables --wait 30 -I INPUT 1 -j REKINDLE-IN" in calls
    assert ":REKINDLE-MEMBERS - [0:0]" not in calls  # a hook that starts again forgets nobody


def test_the_metadata_service_answers_root_and_the_containers_user_alone(machine: Path) -> None:
    rules = [line for line in (machine / "calls").read_text().splitlines() if "-OUT " in line]

    assert rules[1:4] == [
        "-A REKINDLE-OUT -m owner --uid-owner 0 -j RETURN",
        f"-A REKINDLE-OUT -d 169.254.169.254 -m owner --uid-owner {USER[:5]} -j RETURN",
        "-A REKINDLE-OUT -d 169.254.169.254 -j REJECT",
    ]


async def test_members_are_admitted_before_the_ranks_may_meet(watched: Path) -> None:
    await admit_members(GENERATION, watched / "door")

    assert _admitted(watched)[-4:] == [
        ":REKINDLE-MEMBERS - [0:0]",
        "-A REKINDLE-MEMBERS -s 10.1.0.4/32 -j ACCEPT",
        "-A REKINDLE-MEMBERS -s 10.1.0.5/32 -j ACCEPT",
        "COMMIT",
    ]


@pytest.mark.parametrize(
    "line", ["3 10.0.0.0/8", "3 10.1.0.4 -j ACCEPT", "3 $(reboot)", "*", "3 a;b"]
)
async def test_a_line_that_is_more_than_addresses_is_not_obeyed(watched: Path, line: str) -> None:
    with (watched / "door" / "members").open("w") as fifo:
        fifo.write(f"{line}\n")
    await admit_members(GENERATION, watched / "door")  # is heard after it

    added = [rule for rule in _admitted(watched) if rule.startswith("-A REKINDLE-MEMBERS")]
    assert added == [f"-A REKINDLE-MEMBERS -s 10.1.0.{n}/32 -j ACCEPT" for n in (4, 5)]


async def test_a_firewall_that_refuses_keeps_the_ranks_from_starting(watched: Path) -> None:
    (watched / "broken").touch()

    with pytest.raises(FirewallError, match="systemctl status rekindle-firewall"):
        await admit_members(GENERATION, watched / "door", seconds=0.1)


async def test_a_hook_that_starts_again_is_waited_for(machine: Path) -> None:
    admission = asyncio.create_task(admit_members(GENERATION, machine / "door"))
    await asyncio.sleep(0)

    with _hook(machine):
        await admission

    assert (machine / "door" / "applied").read_text() == "3 10.1.0.4 10.1.0.5\n"


def test_an_emulated_machine_has_no_firewall(tmp_path: Path) -> None:
    asyncio.run(admit_members(GENERATION, tmp_path / "nothing"))

    assert list(tmp_path.iterdir()) == []


@contextmanager
def _hook(machine: Path) -> Iterator[None]:
    with subprocess.Popen(["sh", machine / "firewall", "watch"], env=_environment(machine)) as hook:
        yield
        hook.kill()


def _environment(machine: Path) -> dict[str, str]:
    return {"PATH": f"{machine}:/usr/bin:/bin"}


def _admitted(machine: Path) -> list[str]:
    lines = (machine / "calls").read_text().splitlines()
    last_insert = len(lines) - lines[::-1].index("ip6tables --wait 30 -I INPUT 1 -j REKINDLE-IN")
    return lines[last_insert:]
