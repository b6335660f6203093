"""Tell the machine's firewall who may reach this node, before a generation's ranks meet.

The firewall belongs to root, outside the container (`service/cloud/node_firewall.py`). It reads
lines of NUMBER ADDRESS... from a FIFO, applies each as its rules, then writes the line to a file.
Without the FIFO there is no firewall: an emulated machine is a process tree of a host.
"""

import asyncio
import errno
import ipaddress
import os
import select
from collections.abc import Callable
from pathlib import Path

from trainer.contract import Generation

FIREWALL_FOLDER = Path("/run/rekindle")
REQUESTED, APPLIED = "members", "applied"  # in it
SECONDS = 30.0  # for the rules to be there; the hook needs some milliseconds
_POLL_SECONDS = 0.02


class FirewallError(OSError):
    """The firewall did not admit the members; no rank may start."""


async def admit_members(
    generation: Generation, folder: Path = FIREWALL_FOLDER, seconds: float = SECONDS
) -> None:
    """Admit the generation's members only; return once applied, or raise an OSError."""
    if not (folder / REQUESTED).exists():
        return
    addresses = {str(ipaddress.IPv4Address(member.address)) for member in generation.members}
    line = " ".join([str(generation.number), *sorted(addresses)]) + "\n"
    if len(line) > select.PIPE_BUF:
        raise FirewallError(f"{len(line)} bytes of addresses; the firewall takes {select.PIPE_BUF}")
    try:
        async with asyncio.timeout(seconds):
            await _poll_until(lambda: _write_request(folder / REQUESTED, line))
            await _poll_until(lambda: _is_applied(folder / APPLIED, line))
    except TimeoutError:
        raise FirewallError(
            f"the node's firewall did not answer for {seconds:.0f} s;"
            " on the machine: systemctl status rekindle-firewall"
        ) from None


async def _poll_until(done: Callable[[], bool]) -> None:
    """Poll until ``done``: the firewall sends no signal."""
    while True:
        if done():
            return
        await asyncio.sleep(_POLL_SECONDS)


def _write_request(fifo: Path, line: str) -> bool:
    """Write the line whole; return False while the FIFO has no reader or no room."""
    try:
        pipe = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as e:
        if e.errno == errno.ENXIO:
            return False
        raise
    try:
        return os.write(pipe, line.encode()) == len(line)
    except BlockingIOError:
        return False
    finally:
        os.close(pipe)


def _is_applied(file: Path, line: str) -> bool:
    try:
        return file.read_text() == line
    except FileNotFoundError:
        return False
