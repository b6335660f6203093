"""Detect that memory ran out while a rank trains, and record it.

The process still ends: the other ranks wait in a collective. The service opens the next generation
with a smaller batch (its ladder.py).
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from trainer.contract import RunSpec
from trainer.rundir import OutOfMemoryMark, RunDir, write_atomically
from trainer.state import RankIdentity

# Messages about GPU memory in other errors, of CUDA, cuBLAS and NCCL.
_GPU = ("CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "Cuda failure 2 'out of memory'")
_HOST = ("DefaultCPUAllocator: can't allocate memory",)
_LONGEST = 400  # characters of an allocator's message


def is_out_of_memory(error: BaseException, device: str) -> bool:
    """Return whether a smaller batch may avoid this error on "cuda" or "cpu".

    With a GPU, micro-batches fill the GPU's memory; a lack of host memory has another cause.
    """
    if isinstance(error, torch.OutOfMemoryError):
        return True
    if isinstance(error, MemoryError):
        return device == "cpu"
    signs = _HOST if device == "cpu" else _GPU
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs)


@contextmanager
def record_out_of_memory(
    rundir: RunDir, identity: RankIdentity, spec: RunSpec, device: str
) -> Iterator[None]:
    """Write a mark for the supervisor when memory runs out; re-raise the error."""
    try:
        yield
    except (RuntimeError, MemoryError) as e:
        if is_out_of_memory(e, device):
            mark = OutOfMemoryMark(
                message=(str(e) or "no memory is left on the host")[:_LONGEST],
                micro_batch=spec.micro_batch,
                gradient_checkpointing=spec.gradient_checkpointing,
                peak=torch.cuda.max_memory_allocated() if device == "cuda" else 0,
            )
            write_atomically(rundir.out_of_memory(identity.rank), mark.to_json())
        raise
