"""A simulated training process: it steps together with its peers and saves into the outbox.

It outlives a killed supervisor, as the real one does. A save is written in two parts, the data and
then the record: a process that dies between the two leaves a torn save, which nobody may commit.
"""

import json
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

from trainer.contract import Generation, NodePhase, checkpoint_path, model_path
from trainer.rundir import tensors_name

MODEL_FILE = "model.safetensors"
_MODEL_BYTES = 200 * 1024  # large enough to be moved to another storage tier


@dataclass(eq=False)
class PendingSave:
    """One rank's part of a save in the outbox; ``is_complete`` once its record is written."""

    path: str
    generation: Generation
    rank: int
    writers: int
    step: int
    kind: str
    is_complete: bool = False
    sent: bool = False  # data and record are in Blob

    @property
    def files(self) -> dict[str, bytes]:
        """Return the files by name; their bytes tell of which save and rank they are."""
        content = json.dumps([self.generation.number, self.step, self.rank]).encode()
        if self.kind != "final":
            return {tensors_name(self.rank): content}
        return {MODEL_FILE: content.ljust(_MODEL_BYTES), "config.json": b"{}"}


@dataclass(eq=False)
class TrainerProcess:
    """The process group of one node, as one process. ``how``: how it ended."""

    vm_id: str
    generation: Generation
    rank: int
    outbox: dict[str, PendingSave]
    hold: int = 10**9  # no step after this one
    last: int = 0  # the last step; 0: none is set
    step: int = 0
    saved_at: int = -1
    stop: bool = False
    alive: bool = True
    how: NodePhase | None = None
    planned: deque[PendingSave | NodePhase] = field(default_factory=deque)

    def __post_init__(self) -> None:
        """Begin at the checkpoint that the generation loads."""
        if self.generation.checkpoint:
            self.step = self.generation.checkpoint.step

    @property
    def is_between_steps(self) -> bool:
        """True when it has nothing to do before its next step."""
        return self.alive and not self.planned

    def save(self, kind: str) -> None:
        """Plan a save; a step is saved once per generation, and the model by rank 0 alone."""
        nonce = f"{self.generation.number:08x}"
        if kind == "final":
            if self.rank:
                return
            path, writers = model_path(self.step, nonce), 1
        elif self.saved_at == self.step:
            return
        else:
            path, writers = checkpoint_path(self.step, nonce), self.generation.world_size
            self.saved_at = self.step
        save = PendingSave(path, self.generation, self.rank, writers, self.step, kind)
        self.planned += [save, save]  # once for the data, once for the record

    def end(self, outcome: NodePhase) -> None:
        """Plan to end after what is planned already."""
        self.planned.append(outcome)

    def do_next(self) -> bool:
        """Do one planned thing; False when nothing is planned."""
        if not self.alive or not self.planned:
            return False
        planned = self.planned.popleft()
        if isinstance(planned, NodePhase):
            self.die(planned)
        elif planned.path in self.outbox:
            planned.is_complete = True
        else:
            self.outbox[planned.path] = planned
        return True

    def die(self, outcome: NodePhase = NodePhase.FAILED) -> None:
        """End at once, whatever is planned."""
        if self.alive:
            self.alive, self.how = False, outcome


def step_together(group: Collection[TrainerProcess]) -> bool:
    """Let all ranks do one step, or stop, or finish; return whether a step was done.

    A collective needs every rank of the generation: with one missing nothing happens.
    """
    first = next(iter(group))
    if len(group) < len(first.generation.members):
        return False
    if not all(trainer.is_between_steps for trainer in group):
        return False
    if any(trainer.stop for trainer in group):
        _end(group, "stop", NodePhase.STOPPED)
    elif all(0 < trainer.last <= trainer.step for trainer in group):
        _end(group, "final", NodePhase.FINISHED)
    elif first.step < min(trainer.hold for trainer in group):
        for trainer in group:
            trainer.step += 1
            if trainer.step % 2 == 0:
                trainer.save("periodic")
        return True
    return False


def _end(group: Collection[TrainerProcess], kind: str, outcome: NodePhase) -> None:
    for trainer in group:
        trainer.save(kind)
        trainer.end(outcome)
