"""The saved state: fp32 master weights and Adam moments of a DeepSpeed engine with ZeRO.

The value of each element follows from its parameter's name and its position. So a load can be
checked without a second copy, on any number of ranks.
"""

import math
import os
import zlib
from collections.abc import Iterator
from typing import Any

os.environ["DS_ACCELERATOR"] = "cpu"  # DeepSpeed reads it at import

import deepspeed
import deepspeed.ops
import torch
import torch.distributed as dist

from bench.checkpoint.case import MIB
from trainer.checkpoint.fragments import Fragment, owned_fragments

BYTES = 12  # bytes of an element: master, exp_avg, exp_avg_sq
LARGE, SMALL = 1024, 128  # edge lengths of the matrices
MASK = 2**23 - 1  # fp32 represents integers up to here exactly
STEPS_BETWEEN = 7919


class State:
    """This rank's partition of the state, as views of the engine's memory."""

    def __init__(self, mib: int) -> None:
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # avoids a compilation
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        deepspeed.init_distributed("gloo")
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.engine = _engine(mib)

    @property
    def bytes(self) -> int:
        """Size of this rank's partition, in bytes."""
        return sum(v.numel() * v.element_size() for _, v in self.views())

    def views(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the name and the one-dimensional view of every piece.

        Views are looked up on each call, because a load may replace the tensors.
        """
        for fragment in self._fragments():
            for state, view in fragment.views.items():
                yield f"{fragment.name}|{state}", view.detach()

    def fill(self) -> None:
        """Set every element to its expected value."""
        for _, view, values in self._expected():
            view.copy_(values)

    def clear(self) -> None:
        """Set every element to zero."""
        for _, view in self.views():
            view.zero_()

    def touch(self) -> None:
        """Change the state as a training step would; a pending save must not change with it."""
        for _, view in self.views():
            view[:1].add_(1.0)

    def matches(self) -> bool:
        """Return whether every element has its expected value."""
        return all(torch.equal(view, values) for _, view, values in self._expected())

    def _fragments(self) -> list[Fragment]:
        with torch.no_grad():
            return owned_fragments(self.engine)

    def _expected(self) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
        with torch.no_grad():
            for fragment in self._fragments():
                for state, view in fragment.views.items():
                    name = f"{fragment.name}|{state}"
                    positions = torch.arange(fragment.start, fragment.start + fragment.numel)
                    mixed = positions.mul_(STEPS_BETWEEN).add_(zlib.crc32(name.encode()))
                    yield name, view.detach(), mixed.bitwise_and_(MASK).to(torch.float32)


def _engine(mib: int) -> Any:  # noqa: ANN401 - deepspeed is untyped here
    elements = mib * MIB // BYTES
    edge = LARGE if elements > 4 * LARGE**2 else SMALL
    shapes = [(edge, edge)] * max(round(elements / edge**2), 1)
    model = torch.nn.ParameterList(
        [torch.empty(shape, dtype=torch.bfloat16).zero_() for shape in [*shapes, (edge + 1,)]]
    )
    size = math.prod(shapes[0])
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {
            "stage": 2,
            "reduce_bucket_size": size,
            "allgather_bucket_size": size,
        },
        "bf16": {"enabled": True},
        "data_types": {"grad_accum_dtype": "fp32"},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
        "steps_per_print": 10**9,
    }
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=config
    )
    return engine
