"""A short all-reduce before training: check the bandwidth within and between machines.

A machine whose GPUs communicate slowly is unhealthy and is replaced. A slow network between
machines only warns the user: one collective does not show which machine causes it.
"""

import time
from dataclasses import dataclass

import torch
import torch.distributed as dist

from trainer.contract import Generation
from trainer.rundir import RunDir, write_atomically

BYTES = {"cuda": 2**30, "cpu": 2**12}  # of one all-reduce
TRIES = 4  # the best counts; a first one more only sets up connections
# Of Azure's limit, which is for 16 GiB at a time on an idle machine. A link that is down, or PCIe
# in place of NVLink (20 to 30 GB/s), is far below it.
LEAST_SHARE = 0.5


class SlowMachineError(RuntimeError):
    """A machine of this world is unhealthy; its own supervisor knows which."""


@dataclass(frozen=True, kw_only=True)
class ExpectedBandwidth:
    """Bus bandwidths of healthy machines, in GB/s; 0: not checked."""

    inside: float = 0.0
    between: float = 0.0


def require_bandwidth(
    rundir: RunDir, generation: Generation, device: torch.device, expected: ExpectedBandwidth
) -> str:
    """Measure on every rank; return a warning for the user, or "".

    Raises SlowMachineError on every rank if a machine of the world is too slow within itself.
    """
    per_node, world = generation.processes_per_node, generation.world_size
    if world == 1:
        return ""
    inside = _intra_node_bandwidth(per_node, world, device)
    slow = 0 < inside < LEAST_SHARE * expected.inside
    if slow:
        text = f"all-reduce between its GPUs reaches {inside:.0f} GB/s, {expected.inside:.0f} are"
        write_atomically(rundir.unhealthy(dist.get_rank()), f"{text} usual: an NVLink may be down")
    any_slow = torch.tensor(int(slow), device=device)
    dist.all_reduce(any_slow, op=dist.ReduceOp.MAX)
    if int(any_slow):
        raise SlowMachineError("a machine of this world is too slow within itself, and is replaced")
    between = bus_bandwidth(None, device) if world > per_node else 0.0
    if not 0 < between < LEAST_SHARE * expected.between:
        return ""
    return (
        f"All-reduce between the job's machines reaches {between:.0f} GB/s, and"
        f" {expected.between:.0f} are usual for the VM size: training is slow. An InfiniBand link"
        " may be slow; start the job anew to have other machines."
    )


def bus_bandwidth(group: dist.ProcessGroup | None, device: torch.device) -> float:
    """Return the bus bandwidth of all-reduce in GB/s (nccl-tests, doc/PERFORMANCE.md)."""
    ranks: int = dist.get_world_size(group)
    size = BYTES[device.type]
    data = torch.zeros(size // 4, device=device)  # no random numbers are drawn
    seconds = min([_time_all_reduce(data, group, device) for _ in range(TRIES + 1)][1:])
    del data
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return 2 * (ranks - 1) / ranks * size / seconds / 1e9


def _intra_node_bandwidth(per_node: int, world: int, device: torch.device) -> float:
    """Measure between this machine's GPUs; 0 for one GPU. Every rank makes every group."""
    if per_node == 1:
        return 0.0
    if per_node == world:
        return bus_bandwidth(None, device)
    nodes = range(0, world, per_node)
    groups = [dist.new_group(list(range(first, first + per_node))) for first in nodes]
    group = groups[dist.get_rank() // per_node]
    speed = bus_bandwidth(group, device)
    dist.destroy_process_group(group)  # its communicator has memory of the GPU
    return speed


def _time_all_reduce(
    data: torch.Tensor, group: dist.ProcessGroup | None, device: torch.device
) -> float:
    start = time.perf_counter()
    dist.all_reduce(data, group=group)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start
