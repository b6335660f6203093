"""Check that this machine's GPUs and links are as the VM size promises.

It runs before the node joins, and again after a trainer has failed here. The container has no
capabilities and no kernel log (`dmesg` needs CAP_SYSLOG): a systemd unit of the machine copies the
driver's Xid errors into a file.
"""

import asyncio
import logging
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from trainer.contract import ExpectedHardware, GpuErrors, GpuLoad
from trainer.supervisor.machine.gpu_report import (
    STATUSES,
    errors_of_gpus,
    faults_of_gpus,
    faults_of_nvlink,
    faults_of_xids,
    loads_of_gpus,
)

XIDS = "xids"  # beside NODE_CONFIG
MOST_BYTES = 4 * 2**20  # of one call's output; eight GPUs print 150 KB
MOST_FAULTS = 5  # listed; the others are counted
_KILL_SECONDS = 2.0  # seconds for a killed process; one that hangs in the driver does not end

log = logging.getLogger(__name__)


class NoAnswerError(Exception):
    """nvidia-smi gives no usable answer; the text is the fault."""


@dataclass(frozen=True, kw_only=True)
class GpuReading:
    """Loads of the GPUs now, and their errors since the boot."""

    loads: tuple[GpuLoad, ...] = ()
    errors: GpuErrors = field(default_factory=GpuErrors)


@dataclass(frozen=True, kw_only=True)
class HealthCheck:
    """Checks one machine; the defaults are a node's paths."""

    expected: ExpectedHardware | None = None  # None: nothing is looked at, as without GPUs
    smi: str = "nvidia-smi"
    patience: float = 30.0  # seconds for one call
    infiniband: Path = Path("/sys/class/infiniband")
    xids: Path = Path("/etc/rekindle") / XIDS
    port_tries: int = 30  # two seconds apart: ports come up after the machine
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def find_faults(self) -> str:
        """Return why the machine must be replaced; "" if it is healthy."""
        if self.expected is None:
            return ""
        faults = [*await self._gpus(self.expected), *self._xids()]
        faults += await self._ports(self.expected)
        if faults:
            log.warning("machine.unhealthy faults=%s", faults)
        remaining = len(faults) - MOST_FAULTS
        return "; ".join(faults[:MOST_FAULTS]) + (
            f"; and {remaining} more" if remaining > 0 else ""
        )

    async def read_gpus(self) -> GpuReading:
        """Return loads and error counts of the GPUs; empty where they do not answer."""
        if self.expected is None:
            return GpuReading()
        try:
            report = await self._query("-q", "-x")
        except NoAnswerError:
            report = ""
        errors = errors_of_gpus(report, self._xid_log())
        return GpuReading(loads=loads_of_gpus(report), errors=errors)

    async def _gpus(self, expected: ExpectedHardware) -> list[str]:
        try:
            faults = faults_of_gpus(await self._query_with_retry("-q", "-x"), expected)
            if expected.nvlink_gbytes:
                faults += faults_of_nvlink(await self._query_with_retry("nvlink", "--status"))
        except (NoAnswerError, ValueError) as e:
            return [str(e)]
        return faults

    def _xids(self) -> list[str]:
        return faults_of_xids(self._xid_log())

    def _xid_log(self) -> str:
        with suppress(OSError):  # an older service leaves none
            return self.xids.read_text(errors="replace")
        return ""

    async def _ports(self, expected: ExpectedHardware) -> list[str]:
        """Return missing InfiniBand ports, after waiting for them to come up."""
        if not expected.infiniband_gbps:
            return []
        up = 0
        for tries_left in reversed(range(self.port_tries)):
            up = _active_ports(self.infiniband, expected.infiniband_gbps)
            if up >= expected.gpus:
                return []
            if tries_left:
                await self.sleep(2.0)
        rate = expected.infiniband_gbps
        return [f"{up} of {expected.gpus} InfiniBand ports are active at {rate} Gb/s"]

    async def _query_with_retry(self, *arguments: str) -> str:
        """Run nvidia-smi; retry once, since one failed probe proves nothing.

        A busy, healthy machine may miss one (skypilot-org/skypilot issue 10162).
        """
        try:
            return await self._query(*arguments)
        except NoAnswerError as e:
            log.warning("machine.not_probed reason=%s", e)
            return await self._query(*arguments)

    async def _query(self, *arguments: str) -> str:
        command = " ".join(("nvidia-smi", *arguments))
        try:
            process = await asyncio.create_subprocess_exec(
                self.smi, *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=PIPE, stderr=STDOUT
            )
        except OSError as e:
            raise NoAnswerError(
                f"{command} cannot be run, so no GPU can be used: {e.strerror}"
            ) from e
        try:
            async with asyncio.timeout(self.patience):
                output = await _read_output(process, command)
                status = await process.wait()
        except TimeoutError as e:
            raise NoAnswerError(f"{command} did not answer within {self.patience:.0f} s") from e
        finally:
            await _kill_process(process)
        if status:
            why = (
                STATUSES.get(status)
                or output.strip().rpartition("\n")[2][:200]
                or "no reason given"
            )
            raise NoAnswerError(f"{command} failed with status {status}: {why}")
        return output


async def _read_output(process: asyncio.subprocess.Process, command: str) -> str:
    assert process.stdout is not None, "it is piped"
    try:
        await process.stdout.readexactly(MOST_BYTES)
    except asyncio.IncompleteReadError as e:
        return e.partial.decode(errors="replace")
    raise NoAnswerError(f"{command} printed more than {MOST_BYTES // 2**20} MiB")


async def _kill_process(process: asyncio.subprocess.Process) -> None:
    """Kill a running process, and wait for it only briefly."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _KILL_SECONDS)


def _active_ports(root: Path, gbps: int) -> int:
    """Count the InfiniBand ports, not Ethernet, that are up at this rate or higher.

    The kernel's Documentation/ABI/stable/sysfs-class-infiniband: state "4: ACTIVE", rate "400
    Gb/sec (4X NDR)". Azure's check is check_hw_ib RATE PORT for each of eight ports.
    """
    ports = root.glob("*/ports/*")
    return sum(
        _read_sysfs(port / "link_layer") == "InfiniBand"
        and _read_sysfs(port / "state").endswith("ACTIVE")
        and _rate(_read_sysfs(port / "rate")) >= gbps
        for port in ports
    )


def _read_sysfs(path: Path) -> str:
    with suppress(OSError, ValueError):
        return path.read_text().strip()
    return ""


def _rate(text: str) -> float:
    with suppress(ValueError):
        return float(text.partition(" ")[0])
    return 0.0
