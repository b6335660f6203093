"""Who may reach this node: told to the machine's firewall before a generation's ranks meet.

The firewall is root's, outside the container (`service/cloud/node_firewall.py`): it reads lines of
NUMBER ADDRESS... from a FIFO and, when each has become its rules, leaves the line in a file. Where
there is no FIFO there is no such firewall: on an emulated machine, a process tree of a host.
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
ASKED, APPLIED = "members", "applied"  # in it
SECONDS = 30.0  # for the rules to be there; the hook needs some milliseconds
_POLL_SECONDS = 0.02


class FirewallError(OSError):
    """The firewall did not admit the members; without it no rank may start."""


async def admit_members(
    generation: Generation, door: Path = FIREWALL_FOLDER, seconds: float = SECONDS
) -> None:
    """Let its members and no others reach this node; return when it is so, or raise an OSError."""
    if not (door / ASKED).exists():
        return
    addresses = {str(ipaddress.IPv4Address(member.address)) for member in generation.members}
    line = " ".join([str(generation.number), *sorted(addresses)]) + "\n"
    if len(line) > select.PIPE_BUF:
        raise FirewallError(f"{len(line)} bytes of addresses; the firewall takes {select.PIPE_BUF}")
    try:
        async with asyncio.timeout(seconds):
            await _poll_until(lambda: _write_request(door / ASKED, line))
            await _poll_until(lambda: _is_applied(door / APPLIED, line))
    except TimeoutError:
        raise FirewallError(
            f"the node's firewall did not answer for {seconds:.0f} s;"
            " on the machine: systemctl status rekindle-firewall"
        ) from None


async def _poll_until(done: Callable[[], bool]) -> None:
    """Look again and again; the firewall gives no signal."""
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
