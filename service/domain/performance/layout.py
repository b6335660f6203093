"""Lay out a training run on machines of one size: nodes, ZeRO stage, micro-batch.

The fewest nodes that fit, then the lowest ZeRO stage (it sends the least), then the largest
micro-batch.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from service.domain.errors import InvalidRequest
from service.domain.models.architecture import Architecture
from service.domain.performance.memory import GIB, MARGIN, MemoryEstimate, MicroStep, estimate
from service.domain.performance.vm_catalogue import Sku
from service.domain.training.recipe import Hyperparameters, Recipe, Training, resolve, zero_stages
from trainer.contract import Lora

_MAX_MICRO_BATCH = 64
_SHORTEST = 256  # tokens; the advice never cuts rows to less
_FEW_ANSWERS = 4  # to a prompt; fewer say little about each other
_HOST_SHARE = 0.6  # of a machine's own memory
_ADVISED_CHUNK = 1024  # positions
_ADVISED_LORA = Lora(rank=16, alpha=32, dropout=0.05)
# Adapters freeze the base model anyway.
_ALL_WEIGHTS: dict[str, Any] = {"train_last_n_layers": None, "train_embeddings": True}


@dataclass(frozen=True, kw_only=True)
class LayoutRequest:
    """What is to be laid out."""

    arch: Architecture
    hyperparameters: Hyperparameters
    training: Training
    examples: int
    nodes: int | None
    processes_per_node: int | None
    max_nodes: int
    judge: int = 0  # parameters of the reward model that grades


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A layout that fits."""

    nodes: int
    processes_per_node: int
    zero_stage: int
    micro_batch: int
    accumulation: int
    memory: MemoryEstimate
    recipe: Recipe


@dataclass(frozen=True, kw_only=True)
class MemoryShortfall:
    """The layout closest to fitting: bytes needed and available."""

    sku: Sku
    nodes: int
    needed: int
    available: int
    of_gpu: bool = True  # else of the machine's own memory

    @property
    def where(self) -> str:
        """Return what is too small, as a phrase."""
        return "GPU" if self.of_gpu else "host"

    @property
    def excess(self) -> int:
        """Return the missing bytes."""
        return self.needed - self.available


def fit(needs: LayoutRequest, sku: Sku) -> Layout | MemoryShortfall:
    """Return the best layout on machines of this size, or the closest shortfall."""
    first, *larger = _node_counts(needs)
    if layout := _best_layout(needs, sku, first):  # as most do
        return layout
    closest = _smallest_shortfall(needs, sku)
    if closest.excess > 0:  # memory only shrinks with more nodes, so no other count fits either
        return closest
    layouts = (layout for nodes in larger if (layout := _best_layout(needs, sku, nodes)))
    return next(layouts)


def has_room(needs: LayoutRequest, layout: Layout, sku: Sku, nodes: int) -> bool:
    """Return whether the same run, shared out over this many nodes, fits too."""
    world = nodes * layout.processes_per_node
    stage, micro_batch = layout.zero_stage, layout.micro_batch
    memory = _memory(needs, layout.recipe, stage, world, micro_batch)
    return fits_machine(memory, sku, layout.processes_per_node)


def fits_machine(memory: MemoryEstimate, sku: Sku, per_node: int) -> bool:
    """Return whether a GPU holds its part, and the machine what is offloaded."""
    return memory.needed <= sku.gpu_memory_gib * GIB and memory.host * per_node <= _host_room(sku)


def _host_room(sku: Sku) -> int:
    """Return the bytes of host memory for an optimizer; saves need the rest."""
    return round(sku.ram_gib * GIB * _HOST_SHARE)


def refusal(needs: LayoutRequest, misfit: MemoryShortfall) -> str:
    """Return by how much the run is too large, and what would make it fit."""
    return (
        f"The job does not fit on {misfit.nodes} x {misfit.sku.vm_size}: sharded over all of them, "
        f"each {misfit.where} needs {_gib(misfit.needed)} GiB "
        f"({MARGIN if misfit.of_gpu else 1 - _HOST_SHARE:.0%} kept free) of "
        f"{_gib(misfit.available)}: {_gib(misfit.excess)} GiB too large. "
        f"{_advice(needs, misfit.sku)}"
    )


def same_batch(
    needs: LayoutRequest, sku: Sku, first: Layout, *, more_nodes: bool
) -> Iterator[Layout]:
    """Yield the layouts that train the global batch of ``first``, fewest nodes first.

    Of each number of nodes all micro-batches of the lowest ZeRO stage that fits, largest first.
    """
    batch = first.recipe.global_batch
    most = _node_counts(needs)[-1] if more_nodes else first.nodes
    for nodes in range(first.nodes, min(most, batch // first.processes_per_node) + 1):
        if nodes == first.nodes or batch % (nodes * first.processes_per_node) == 0:
            layouts = _layouts_on(needs, sku, nodes)
            yield from (layout for layout in layouts if layout.recipe.global_batch == batch)


def _best_layout(needs: LayoutRequest, sku: Sku, nodes: int) -> Layout | None:
    """Return the best layout on this many nodes, if any fits."""
    return next(_layouts_on(needs, sku, nodes), None)


def _layouts_on(needs: LayoutRequest, sku: Sku, nodes: int) -> Iterator[Layout]:
    """Yield layouts of the lowest ZeRO stage that fits on ``nodes`` nodes, by micro-batch."""
    per_node = needs.processes_per_node or sku.gpus
    world = nodes * per_node
    recipe = _recipe(needs, world)
    rows = recipe.global_batch // world
    fits = False
    for stage in _stages(needs.training):
        for micro_batch in _micro_batches(needs.training, rows):
            memory = _memory(needs, recipe, stage, world, micro_batch)
            if fits_machine(memory, sku, per_node):
                fits = True
                yield Layout(
                    nodes=nodes,
                    processes_per_node=per_node,
                    zero_stage=stage,
                    micro_batch=micro_batch,
                    accumulation=rows // micro_batch,
                    memory=memory,
                    recipe=recipe,
                )
        if fits:
            return


def _smallest_shortfall(needs: LayoutRequest, sku: Sku) -> MemoryShortfall:
    nodes = max(_node_counts(needs))
    per_node = needs.processes_per_node or sku.gpus
    micro_batch = needs.training.micro_batch or 1
    recipe = _recipe(needs, nodes * per_node)
    best = min(
        (
            _memory(needs, recipe, stage, nodes * per_node, micro_batch)
            for stage in _stages(needs.training)
        ),
        key=lambda memory: memory.needed,
    )
    shortfall = MemoryShortfall(
        sku=sku, nodes=nodes, needed=best.needed, available=sku.gpu_memory_gib * GIB
    )
    host, room = best.host * per_node, _host_room(sku)
    if shortfall.excess > 0 or host <= room:
        return shortfall
    return MemoryShortfall(sku=sku, nodes=nodes, needed=host, available=room, of_gpu=False)


def _node_counts(needs: LayoutRequest) -> range:
    if needs.nodes is not None:
        return range(needs.nodes, needs.nodes + 1)
    return range(1, needs.max_nodes + 1)


def _stages(training: Training) -> range:
    if training.zero_stage is not None:
        return range(training.zero_stage, training.zero_stage + 1)
    return zero_stages(training)


def _micro_batches(training: Training, rows: int) -> Iterator[int]:
    """Yield powers of two that divide a process's rows of a step, largest first."""
    if training.micro_batch is not None:
        yield training.micro_batch
        return
    largest = min(rows & -rows, _MAX_MICRO_BATCH)  # the largest power of two that divides
    while largest:
        yield largest
        largest //= 2


def _recipe(needs: LayoutRequest, world: int) -> Recipe:
    return resolve(
        needs.hyperparameters,
        needs.training,
        examples=needs.examples,
        arch=needs.arch,
        world=world,
    )


def _memory(
    needs: LayoutRequest, recipe: Recipe, stage: int, world: int, micro_batch: int
) -> MemoryEstimate:
    return estimate(
        needs.arch,
        MicroStep(
            samples=micro_batch,
            seq_len=recipe.max_seq_len,
            method=recipe.method,
            sequences=recipe.sequences,
            reinforcement=recipe.reinforcement,
            judge=needs.judge,
            averaged=recipe.ema_decay > 0,
        ),
        zero_stage=stage,
        world=world,
        options=recipe,
    )


def _advice(needs: LayoutRequest, sku: Sku) -> str:
    """Return each single change that makes it fit, else whether all together do."""
    remedies = list(_remedies(needs, sku))
    works = [text for text, changed in remedies if _would_fit(changed, sku)]
    if works:
        return f"It would fit with {', or with '.join(works)}."
    frugal = replace(needs, training=_frugal_training(needs), nodes=None)
    if _would_fit(frugal, sku):
        return (
            "No single change is enough; it would fit with LoRA, gradient checkpointing, "
            f"max_seq_len {frugal.training.max_seq_len} and more nodes together."
        )
    return "No change makes it fit there: choose a smaller base model or larger GPUs."


def _would_fit(needs: LayoutRequest, sku: Sku) -> bool:
    """Return whether it fits; False for changes incompatible with the rest of the request."""
    try:
        return isinstance(fit(needs, sku), Layout)
    except InvalidRequest:
        return False


def _remedies(needs: LayoutRequest, sku: Sku) -> Iterator[tuple[str, LayoutRequest]]:
    """Yield single changes, most harmless first."""
    training = needs.training
    if not training.gradient_checkpointing:
        yield (
            "gradient checkpointing",
            _with_training(needs, replace(training, gradient_checkpointing=True)),
        )
    if training.zero_stage is not None or training.micro_batch is not None:
        freed = replace(training, zero_stage=None, micro_batch=None)
        yield "zero_stage and micro_batch left out", _with_training(needs, freed)
    if needs.nodes is not None:
        result = fit(replace(needs, nodes=None), sku)
        if isinstance(result, Layout) and result.nodes > needs.nodes:
            yield f"{result.nodes} nodes", replace(needs, nodes=result.nodes)
    yield from _lighter_requests(needs)
    if length := _fitting_seq_len(needs, sku):
        yield f"max_seq_len {length}", _with_training(needs, replace(training, max_seq_len=length))
    if (reinforcement := training.reinforcement) and reinforcement.answers > _FEW_ANSWERS:
        fewer = replace(reinforcement, answers=_FEW_ANSWERS)
        yield (
            f"{_FEW_ANSWERS} answers to a prompt",
            _with_training(needs, replace(training, reinforcement=fewer)),
        )


def _lighter_requests(needs: LayoutRequest) -> Iterator[tuple[str, LayoutRequest]]:
    """Yield changes of the training states, closest to the request first."""
    training = needs.training
    if not training.loss_chunk and training.method == "supervised" and needs.arch.packs:
        chunked = replace(training, loss_chunk=_ADVISED_CHUNK)
        yield f"loss_chunk {_ADVISED_CHUNK}", _with_training(needs, chunked)
    if not training.offload and training.zero_stage != 0:
        offloaded = replace(training, offload="optimizer")
        yield "the optimizer offloaded", _with_training(needs, offloaded)
    if training.offload != "parameters" and training.zero_stage in (None, 3):
        fetched = replace(training, offload="parameters")
        yield "optimizer and weights offloaded", _with_training(needs, fetched)
    if training.lora is None and needs.arch.adapts:
        lora = replace(training, lora=_ADVISED_LORA, **_ALL_WEIGHTS)
        yield f"LoRA (rank {_ADVISED_LORA.rank})", _with_training(needs, lora)
    elif training.lora and not training.lora.quantized and training.zero_stage != 3:
        quantized = replace(training, lora=replace(training.lora, quantized=True))
        yield "QLoRA", _with_training(needs, quantized)


def _fitting_seq_len(needs: LayoutRequest, sku: Sku) -> int | None:
    """Return the longest rows that fit, halving."""
    length = _recipe(needs, 1).max_seq_len // 2
    while length >= _min_seq_len(needs.training):
        changed = _with_training(needs, replace(needs.training, max_seq_len=length))
        if _would_fit(changed, sku):
            return length
        length //= 2
    return None


def _min_seq_len(training: Training) -> int:
    """Return the minimum length to cut rows to: twice the answers' length, where it is given."""
    reinforcement = training.reinforcement
    return max(_SHORTEST, 2 * reinforcement.max_answer_tokens) if reinforcement else _SHORTEST


def _frugal_training(needs: LayoutRequest) -> Training:
    length = min(_min_seq_len(needs.training), _recipe(needs, 1).max_seq_len)
    return replace(
        needs.training,
        gradient_checkpointing=True,
        zero_stage=None,
        micro_batch=None,
        max_seq_len=length,
        lora=_ADVISED_LORA if needs.arch.adapts else None,
        **_ALL_WEIGHTS,
    )


def _with_training(needs: LayoutRequest, training: Training) -> LayoutRequest:
    return replace(needs, training=training)


def _gib(size: int) -> str:
    return f"{size / GIB:.1f}"
