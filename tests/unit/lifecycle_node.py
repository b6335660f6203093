"""A node of the life cycle's test: registers, obeys, trains, fails or falls silent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from service.domain.lifecycle.node import NodeRecord, apply_heartbeat, apply_registration
from trainer.contract import (
    PROTOCOL,
    DirectiveKind,
    EvictionNotice,
    Generation,
    Heartbeat,
    NodePhase,
    Registration,
)

if TYPE_CHECKING:
    from tests.unit.lifecycle_world import Life

_NOTICE = EvictionNotice(event_id="e", not_before=0.0, seen_at=0.0)


@dataclass(eq=False)
class Node:
    """One VM with its supervisor and, while ``trains`` is not None, a trainer."""

    life: Life
    attempt_id: str
    vm_id: str
    record: NodeRecord | None = None  # the service's row
    boot: int = 1
    seq: int = 0
    acted: int = 0  # the highest directive acted upon
    phase: NodePhase = NodePhase.READY
    generation: int = 0  # the highest ever started or stopped
    step: int = 0
    trains: Generation | None = None
    saving: bool = False  # told to save and stop
    silent: bool = False  # cannot reach the service; the trainer goes on
    hung: bool = False  # nothing goes on here any more
    doomed: bool = False  # under an eviction notice

    def turn(self) -> None:
        """Hear what there is to hear, and say what there is to say."""
        if self.silent or self.hung:
            return
        if self.life.is_over(self.attempt_id):
            self.trains = None  # 410: leave
            return
        if self.record is None or self.record.boot_id != f"boot-{self.boot}":
            self._register()
        self._obey()
        self._say()

    def ends(self, how: NodePhase) -> None:
        """The trainer is gone."""
        self.trains, self.saving, self.phase = None, False, how

    def restarts(self) -> None:
        """The supervisor is killed; its next boot kills the trainer that was left."""
        self.boot += 1
        if self.trains:
            self.life.crash(self)

    def _register(self) -> None:
        message = Registration(
            protocol=PROTOCOL,
            attempt_id=self.attempt_id,
            vm_id=self.vm_id,
            boot_id=f"boot-{self.boot}",
            name=self.vm_id,
            address="10.0.0.4",
            gpus=8,
        )
        self.record = apply_registration(self.record, message, self.life.newest_of(self.attempt_id))
        self.seq = 0

    def _obey(self) -> None:
        assert self.record is not None
        asked, number = self.record.directive_kind, self.record.directive_number
        if self.record.directive_seq <= self.acted:
            return
        self.acted = self.record.directive_seq
        if asked is DirectiveKind.START:
            self._start(number)
        elif number >= self.generation and self.trains:
            self.saving = asked is DirectiveKind.CHECKPOINT_AND_STOP
            if not self.saving:
                self.ends(NodePhase.STOPPED)
        elif number > self.generation:
            self.generation, self.phase = number, NodePhase.STOPPED

    def _start(self, number: int) -> None:
        if self.doomed or number <= self.generation:
            return
        row = self.life.generations[number]
        self.generation, self.phase, self.trains = number, NodePhase.RUNNING, row
        self.step = row.checkpoint.step if row.checkpoint else 0
        self.life.trainer_started(self)

    def _say(self) -> None:
        assert self.record is not None
        self.seq += 1
        beat = Heartbeat(
            epoch=self.record.epoch,
            seq=self.seq,
            phase=self.phase,
            generation=self.generation,
            step=self.step,
            free_port=29500,
            eviction=_NOTICE if self.doomed else None,
        )
        after = apply_heartbeat(self.record, beat, self.life.clock().timestamp())
        assert isinstance(after, NodeRecord)
        self.record = after
