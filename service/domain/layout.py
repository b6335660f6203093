"""How a training run lies on machines of one size: nodes, ZeRO stage, micro-batch.

The fewest nodes that fit, then the lowest ZeRO stage (it sends the least), then the largest
micro-batch.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from service.domain.architecture import Architecture
from service.domain.catalogue import Sku
from service.domain.memory import GIB, MARGIN, MemoryEstimate, MicroStep, estimate
from service.domain.recipe import Hyperparameters, Recipe, Training, resolve
from trainer.contract import Lora

_MAX_MICRO_BATCH = 64
_SHORTEST = 256  # tokens; nobody is advised to cut rows to less
_ADVISED_LORA = Lora(rank=16, alpha=32, dropout=0.05)


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What is to be laid out."""

    arch: Architecture
    hyperparameters: Hyperparameters
    training: Training
    examples: int
    nodes: int | None
    processes_per_node: int | None
    max_nodes: int


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A way that fits."""

    nodes: int
    processes_per_node: int
    zero_stage: int
    micro_batch: int
    accumulation: int
    memory: MemoryEstimate
    recipe: Recipe


@dataclass(frozen=True, kw_only=True)
class Misfit:
    """The closest that one came: bytes per GPU that were needed and that there are."""

    sku: Sku
    nodes: int
    needed: int
    available: int

    @property
    def excess(self) -> int:
        """Bytes per GPU that are missing."""
        return self.needed - self.available


def fit(needs: Needs, sku: Sku) -> Layout | Misfit:
    """The best layout on machines of this size, or how far the best one is from fitting."""
    closest = _closest(needs, sku)
    if closest.excess > 0:  # memory only shrinks with more nodes, so no other count fits either
        return closest
    found = (layout for nodes in _node_counts(needs) if (layout := _on(needs, sku, nodes)))
    return next(found)


def has_room(needs: Needs, layout: Layout, sku: Sku, nodes: int) -> bool:
    """True when the same run, shared out over this many nodes, fits too."""
    world = nodes * layout.processes_per_node
    stage, micro_batch = layout.zero_stage, layout.micro_batch
    memory = _memory(needs.arch, layout.recipe, stage, world, micro_batch)
    return memory.needed <= sku.gpu_memory_gib * GIB


def refusal(needs: Needs, misfit: Misfit) -> str:
    """Says by how much it is too large, and what would make it fit."""
    return (
        f"This training run does not fit: with all that may be shared out over {misfit.nodes} x "
        f"{misfit.sku.vm_size} a GPU needs {_gib(misfit.needed)} GiB ({MARGIN:.0%} kept free) and "
        f"has {_gib(misfit.available)}, so it is {_gib(misfit.excess)} GiB too large. "
        f"{_advice(needs, misfit.sku)}"
    )


def _on(needs: Needs, sku: Sku, nodes: int) -> Layout | None:
    """The best layout on this many nodes, if any fits."""
    per_node = needs.processes_per_node or sku.gpus
    world = nodes * per_node
    recipe = _recipe(needs, world)
    rows = recipe.global_batch // world
    for stage in _stages(needs.training):
        for micro_batch in _micro_batches(needs.training, rows):
            memory = _memory(needs.arch, recipe, stage, world, micro_batch)
            if memory.needed <= sku.gpu_memory_gib * GIB:
                return Layout(
                    nodes=nodes,
                    processes_per_node=per_node,
                    zero_stage=stage,
                    micro_batch=micro_batch,
                    accumulation=rows // micro_batch,
                    memory=memory,
                    recipe=recipe,
                )
    return None


def _closest(needs: Needs, sku: Sku) -> Misfit:
    nodes = max(_node_counts(needs))
    world = nodes * (needs.processes_per_node or sku.gpus)
    micro_batch = needs.training.micro_batch or 1
    recipe = _recipe(needs, world)
    needed = min(
        _memory(needs.arch, recipe, stage, world, micro_batch).needed
        for stage in _stages(needs.training)
    )
    return Misfit(sku=sku, nodes=nodes, needed=needed, available=sku.gpu_memory_gib * GIB)


def _node_counts(needs: Needs) -> range:
    if needs.nodes is not None:
        return range(needs.nodes, needs.nodes + 1)
    return range(1, needs.max_nodes + 1)


def _stages(training: Training) -> range:
    if training.zero_stage is not None:
        return range(training.zero_stage, training.zero_stage + 1)
    return range(1 if training.precision == "bf16" else 0, 4)


def _micro_batches(training: Training, rows: int) -> Iterator[int]:
    """Powers of two that divide a process's rows of a step, largest first."""
    if training.micro_batch is not None:
        yield training.micro_batch
        return
    largest = min(rows & -rows, _MAX_MICRO_BATCH)  # the largest power of two that divides
    while largest:
        yield largest
        largest //= 2


def _recipe(needs: Needs, world: int) -> Recipe:
    return resolve(
        needs.hyperparameters,
        needs.training,
        examples=needs.examples,
        arch=needs.arch,
        world=world,
    )


def _memory(
    arch: Architecture, recipe: Recipe, stage: int, world: int, micro_batch: int
) -> MemoryEstimate:
    return estimate(
        arch,
        MicroStep(samples=micro_batch, seq_len=recipe.max_seq_len, method=recipe.method),
        zero_stage=stage,
        world=world,
        lora=recipe.lora,
        checkpointing=recipe.gradient_checkpointing,
        precision=recipe.precision,
    )


def _advice(needs: Needs, sku: Sku) -> str:
    """What alone would make it fit, else whether everything together would."""
    remedies = list(_remedies(needs, sku))
    works = [text for text, changed in remedies if isinstance(fit(changed, sku), Layout)]
    if works:
        return f"It would fit with {', or with '.join(works)}."
    everything = replace(needs, training=replace(_frugal(needs), lora=_ADVISED_LORA), nodes=None)
    if isinstance(fit(everything, sku), Layout):
        return (
            "No single change is enough; it would fit with LoRA, gradient checkpointing, "
            f"max_seq_len {everything.training.max_seq_len} and more nodes together."
        )
    return "Nothing would make it fit there: choose a smaller base model or larger GPUs."


def _remedies(needs: Needs, sku: Sku) -> Iterator[tuple[str, Needs]]:
    """Single changes, most harmless first."""
    training = needs.training
    if not training.gradient_checkpointing:
        yield "gradient checkpointing", _with(needs, replace(training, gradient_checkpointing=True))
    if training.zero_stage is not None or training.micro_batch is not None:
        freed = replace(training, zero_stage=None, micro_batch=None)
        yield "zero_stage and micro_batch left to us", _with(needs, freed)
    if needs.nodes is not None:
        more = fit(replace(needs, nodes=None), sku)
        if isinstance(more, Layout) and more.nodes > needs.nodes:
            yield f"{more.nodes} nodes", replace(needs, nodes=more.nodes)
    if training.lora is None:
        yield (
            f"LoRA (rank {_ADVISED_LORA.rank})",
            _with(needs, replace(training, lora=_ADVISED_LORA)),
        )
    if length := _shorter(needs, sku):
        yield f"max_seq_len {length}", _with(needs, replace(training, max_seq_len=length))


def _shorter(needs: Needs, sku: Sku) -> int | None:
    """The longest rows that fit, halving."""
    length = _recipe(needs, 1).max_seq_len // 2
    while length >= _SHORTEST:
        changed = _with(needs, replace(needs.training, max_seq_len=length))
        if isinstance(fit(changed, sku), Layout):
            return length
        length //= 2
    return None


def _frugal(needs: Needs) -> Training:
    length = min(_SHORTEST, _recipe(needs, 1).max_seq_len)
    return replace(
        needs.training,
        gradient_checkpointing=True,
        zero_stage=None,
        micro_batch=None,
        max_seq_len=length,
    )


def _with(needs: Needs, training: Training) -> Needs:
    return replace(needs, training=training)


def _gib(size: int) -> str:
    return f"{size / GIB:.1f}"
