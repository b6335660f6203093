"""Parse nvidia-smi's reports: GPU loads, errors, and faults that require a new machine.

`nvidia-smi -q -x` reports everything in one call; members that a driver does not know are absent or
"N/A", where `--query-gpu` refuses the whole call. NVML in this process (pynvml) could not be ended:
a call into a hanging driver never returns (NVIDIA/gpu-monitoring-tools issue 46). Limits are those
of Azure's node health checks (github.com/Azure/azurehpc-health-checks), named at each.
"""

import re
from collections.abc import Iterable, Iterator
from xml.etree import ElementTree as ET

from trainer.contract import ExpectedHardware, GpuErrors, GpuLoad

# Share of the size's memory; an H100 of 80 GB reports 81,559 MiB, an H100 NVL of 94 GB 95,830.
LEAST_MEMORY = 0.95
MOST_SRAM_CORRECTED = 10_000  # conf/*.conf: check_gpu_ecc 20000000 10000
MOST_DRAM_ERRORS = 20_000_000
MOST_REMAPPED = 512  # customTests/azure_gpu_ecc.nhc
# customTests/azure_gpu_xid.nhc; what each is: docs.nvidia.com/deploy/xid-errors.
FATAL_XIDS = frozenset({48, 56, 57, 58, 62, 63, 64, 65, 68, 69, 73, 74, 79, 80, 81, 92, 119, 120})
STATUSES = {  # of nvidia-smi's exit: its manual page, RETURN VALUE
    8: "a GPU's power cables are not attached",
    9: "the NVIDIA driver is not loaded",
    10: "a GPU has an interrupt problem",
    12: "the NVML library is missing",
    14: "a GPU's infoROM is corrupted",
    15: "a GPU has fallen off the bus or is not accessible",
}
_MOST_COUNTED = 2**31 - 1  # the most that the contract takes
_XID = re.compile(r"NVRM: Xid \(([^)]{1,40})\): (\d{1,4}),")
_INACTIVE = re.compile(r"inactive", re.IGNORECASE)  # "<inactive>", or "all links are inActive"


def faults_of_gpus(report: str, expected: ExpectedHardware) -> list[str]:
    """Return faults by `nvidia-smi -q -x`, a sentence each; ValueError for another report."""
    try:
        root = ET.fromstring(report)  # noqa: S314 - the driver's own, and expat bounds entities
    except ET.ParseError as e:
        raise ValueError(f"the report of nvidia-smi is no XML: {e}") from e
    gpus = root.findall("gpu")
    faults = [
        fault for number, gpu in enumerate(gpus) for fault in _gpu_faults(number, gpu, expected)
    ]
    if len(gpus) != expected.gpus:
        faults.insert(0, f"{len(gpus)} GPUs answer, the VM size has {expected.gpus}")
    return faults


def loads_of_gpus(report: str) -> tuple[GpuLoad, ...]:
    """Return the load of each GPU that reports it, by `nvidia-smi -q -x`."""
    try:
        gpus = ET.fromstring(report).findall("gpu")  # noqa: S314 - as above
    except ET.ParseError:
        return ()
    return tuple(
        GpuLoad(
            busy=min(_number(gpu.findtext("utilization/gpu_util")) / 100, 1.0),
            memory=min(_number(gpu.findtext("fb_memory_usage/used")) / total, 1.0),
        )
        for gpu in gpus
        if (total := _number(gpu.findtext("fb_memory_usage/total")))
    )


def errors_of_gpus(report: str, log: str) -> GpuErrors:
    """Count ECC errors of `nvidia-smi -q -x` and Xid errors of the kernel's log since the boot.

    ECC counts are those of `volatile`, which are 0 when the driver is loaded: sram_correctable,
    sram_uncorrectable_parity and _secded (sram_uncorrectable of older drivers), dram_correctable
    and dram_uncorrectable.
    """
    try:
        gpus = ET.fromstring(report).findall("gpu")  # noqa: S314 - as above
    except ET.ParseError:
        gpus = []
    counts = [count for gpu in gpus for count in gpu.iterfind("ecc_errors/volatile/*")]
    xids = [int(number) for _, number in _XID.findall(log)]
    fatal = sum(xid in FATAL_XIDS for xid in xids)
    return GpuErrors(
        corrected=_ecc_errors(counts, "ram_correctable"),
        uncorrected=_ecc_errors(counts, "ram_uncorrectable"),
        fatal_xids=fatal,
        other_xids=len(xids) - fatal,
    )


def faults_of_nvlink(report: str) -> list[str]:
    """Return links that are down, by `nvidia-smi nvlink --status` (azure_gpu_nvlink.nhc)."""
    gpu, down = "GPU", dict[str, int]()
    for line in report.splitlines():
        gpu = line.partition(":")[0] if line.startswith("GPU ") else gpu
        if _INACTIVE.search(line):
            down[gpu] = down.get(gpu, 0) + 1
    return [f"{gpu[:20]}: {count} NVLink links are inactive" for gpu, count in down.items()]


def faults_of_xids(log: str) -> list[str]:
    """Return fatal errors that the driver logged since the machine booted."""
    errors = {(where, int(number)) for where, number in _XID.findall(log)}
    fatal = sorted((where, number) for where, number in errors if number in FATAL_XIDS)
    return [f"the driver reported Xid {number} of the GPU at {where}" for where, number in fatal]


def _gpu_faults(number: int, gpu: ET.Element, expected: ExpectedHardware) -> Iterator[str]:
    name = f"GPU {number} ({gpu.get('id', 'unknown bus')[:20]})"
    memory = _number(gpu.findtext("fb_memory_usage/total")) / 1024
    if 0 < memory < LEAST_MEMORY * expected.gpu_memory_gib:
        yield f"{name} has {memory:.1f} GiB of memory, the size has {expected.gpu_memory_gib}"
    action = (gpu.findtext("gpu_recovery_action") or "None").strip()
    if action not in ("None", "N/A"):
        yield f"{name} needs recovery by its driver's word: {action[:40]}"
    yield from (f"{name}: {fault}" for fault in _memory_faults(gpu))


def _memory_faults(gpu: ET.Element) -> Iterator[str]:
    rows = "remapped_rows/remapped_row_"
    if gpu.findtext(f"{rows}pending") == "Yes":
        yield "a row of its memory waits to be remapped"
    if gpu.findtext(f"{rows}failure") == "Yes":
        yield "a row of its memory could not be remapped"
    if (remapped := _number(gpu.findtext(f"{rows}unc"))) > MOST_REMAPPED:
        yield f"{remapped:.0f} rows of its memory were remapped, at most {MOST_REMAPPED} may be"
    if errors := _errors(gpu, "sram_uncorrectable"):
        yield f"{errors:.0f} uncorrectable ECC errors in SRAM"
    if (errors := _errors(gpu, "sram_correctable")) > MOST_SRAM_CORRECTED:
        yield f"{errors:.0f} corrected ECC errors in SRAM, at most {MOST_SRAM_CORRECTED} may be"
    if (errors := _errors(gpu, "dram_")) > MOST_DRAM_ERRORS:
        yield f"{errors:.0f} ECC errors in DRAM, at most {MOST_DRAM_ERRORS} may be"


def _errors(gpu: ET.Element, kind: str) -> float:
    """Return the larger of the counts since the last reset and over the GPU's life."""
    counts = (gpu.iterfind(f"ecc_errors/{since}/*") for since in ("volatile", "aggregate"))
    return max(
        sum(_number(c.text) for c in counters if c.tag.startswith(kind)) for counters in counts
    )


def _ecc_errors(counts: Iterable[ET.Element], kind: str) -> int:
    return min(int(sum(_number(c.text) for c in counts if kind in c.tag)), _MOST_COUNTED)


def _number(text: str | None) -> float:
    """Parse "81559 MiB" or "3"; 0 for "N/A", as where ECC is not supported."""
    match = re.match(r"\s*(\d{1,15})", text or "")
    return float(match[1]) if match else 0.0
