"""Locate a parameter's fp32 master and Adam moments on this rank, for every ZeRO stage.

The only module that reads DeepSpeed's private attributes: those of the version that pyproject.toml
pins. The exact-resume tests guard them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

STATES = ("master", "exp_avg", "exp_avg_sq")
AVERAGE = "average"  # of the master over the steps, where one is kept


@dataclass(frozen=True)
class Fragment:
    """Elements [start, start + numel) of one trained parameter: views into live memory."""

    name: str
    shape: tuple[int, ...]
    start: int
    views: dict[str, torch.Tensor]  # by STATES and AVERAGE, one-dimensional, fp32

    @property
    def numel(self) -> int:
        """Number of elements of each view."""
        return int(self.views["master"].numel())


def owned_fragments(engine: Any) -> list[Fragment]:  # noqa: ANN401 - deepspeed is untyped here
    """Return the fragments that this rank saves; all ranks together own every element once."""
    if engine.zero_optimization_stage() > 0:
        return held_fragments(engine)
    return [_rank_share(f, engine.global_rank, engine.world_size) for f in held_fragments(engine)]


def held_fragments(engine: Any) -> list[Fragment]:  # noqa: ANN401
    """Return the fragments that this rank holds and must load; with stage 0 all of them."""
    find = (_replicated, _partitioned, _partitioned, _sharded)[engine.zero_optimization_stage()]
    return [
        fragment
        for name, parameter in engine.module.named_parameters()
        if parameter.requires_grad
        for fragment in find(engine, name, parameter)
    ]


def refresh_weights(engine: Any) -> None:  # noqa: ANN401
    """Copy the masters into the model's weights, after the masters were written."""
    stage = engine.zero_optimization_stage()
    if stage in (1, 2):
        engine.optimizer.update_lp_params()
    elif stage == 3:
        _refresh_sharded(engine.optimizer)


def optimizer_step(engine: Any) -> int:  # noqa: ANN401
    """Return the step of Adam's bias correction; the same for all parameters."""
    states = _torch_optimizer(engine).state.values()
    return max((int(s["step"]) for s in states if "step" in s), default=0)


def set_optimizer_step(engine: Any, step: int) -> None:  # noqa: ANN401
    """Set the step of Adam's bias correction."""
    for state in _torch_optimizer(engine).state.values():
        if "step" in state:
            state["step"] = torch.tensor(float(step))


def averaged_masters(engine: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:  # noqa: ANN401
    """Yield this rank's masters, each with its moving average, which is created if it is missing.

    The averages are part of the optimizer state, so they are stored and moved with the moments.
    """
    held_fragments(engine)  # makes the moments: AdamW takes a state without them for its own
    for master, state in _torch_optimizer(engine).state.items():
        if AVERAGE not in state:
            state[AVERAGE] = master.detach().clone()
        yield master.detach(), state[AVERAGE]


def _torch_optimizer(engine: Any) -> Any:  # noqa: ANN401
    """Return torch's AdamW, which ZeRO wraps."""
    return getattr(engine.optimizer, "optimizer", engine.optimizer)


def _moments(optimizer: Any, flat: torch.Tensor) -> dict[str, Any]:  # noqa: ANN401
    """Return the state of one optimizer tensor, which AdamW creates only in its first step."""
    state: dict[str, Any] = optimizer.state[flat]
    if "exp_avg" not in state:
        state["step"] = torch.tensor(0.0)
        state["exp_avg"] = torch.zeros_like(flat)
        state["exp_avg_sq"] = torch.zeros_like(flat)
    return state


def _views(
    master: torch.Tensor, state: dict[str, Any], offset: int, numel: int
) -> dict[str, torch.Tensor]:
    names = [name for name in (*STATES[1:], AVERAGE) if name in state]
    return {"master": master} | {k: state[k].view(-1).narrow(0, offset, numel) for k in names}


def _replicated(engine: Any, name: str, p: Any) -> Iterator[Fragment]:  # noqa: ANN401
    state = _moments(engine.optimizer, p)
    yield Fragment(name, tuple(p.shape), 0, _views(p.data.view(-1), state, 0, p.numel()))


def _partitioned(engine: Any, name: str, p: Any) -> Iterator[Fragment]:  # noqa: ANN401
    mapping = p._hp_mapping  # noqa: SLF001 - see the module's docstring
    if mapping is None:
        return  # another rank's partition holds all of it
    flat = engine.optimizer.single_partition_of_fp32_groups[mapping.param_group_index]
    state = _moments(engine.optimizer.optimizer, flat)
    address = mapping.hp_fragment_address
    views = _views(mapping.hp_fragment.view(-1), state, address.start, address.numel)
    yield Fragment(name, tuple(p.shape), mapping.lp_fragment_address.start, views)


def _sharded(engine: Any, name: str, p: Any) -> Iterator[Fragment]:  # noqa: ANN401
    optimizer = engine.optimizer
    group, offset, width = optimizer.grad_position[optimizer.get_param_id(p)]
    start = width * p.ds_process_group.rank()
    numel = min(width, p.ds_numel - start)  # the last rank's share ends in padding
    if numel <= 0:
        return
    flat = optimizer.fp32_partitioned_groups_flat[group]
    state = _moments(optimizer.optimizer, flat)
    views = _views(flat.detach().narrow(0, offset, numel), state, offset, numel)
    yield Fragment(name, tuple(p.ds_shape), start, views)


def _rank_share(fragment: Fragment, rank: int, world_size: int) -> Fragment:
    """Return an even share of a replicated parameter, so that every rank writes as much."""
    start = fragment.numel * rank // world_size
    numel = fragment.numel * (rank + 1) // world_size - start
    views = {k: view.narrow(0, start, numel) for k, view in fragment.views.items()}
    return Fragment(fragment.name, fragment.shape, start, views)


def _refresh_sharded(optimizer: Any) -> None:  # noqa: ANN401
    for group, master in enumerate(optimizer.fp32_partitioned_groups_flat):
        flat = optimizer.fp16_partitioned_groups_flat[group]
        flat.data.copy_(master.data)
        partitions = optimizer.fp16_partitioned_groups[group]
        for partition, updated in zip(
            partitions, optimizer.unflatten(flat, partitions), strict=True
        ):
            partition.data = updated.data
    persistent = optimizer.persistent_parameters
    if persistent:
        persistent[0].partition(persistent)
        persistent[0].all_gather(persistent)
