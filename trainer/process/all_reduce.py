"""Sum numbers over all ranks."""

import torch
import torch.distributed as dist


def sum_over_ranks(*values: torch.Tensor | float, device: torch.device) -> list[float]:
    """Add up each value over all ranks, in double precision; collective."""
    totals = torch.stack([torch.as_tensor(v, dtype=torch.float64, device=device) for v in values])
    dist.all_reduce(totals)
    return [float(total) for total in totals.tolist()]
