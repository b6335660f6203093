"""What the next heartbeats have to tell: kept until the service has answered, and bounded."""

import asyncio
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from trainer.contract import (
    Committed,
    GpuErrors,
    GpuLoad,
    SaveCost,
    Span,
    StepMetrics,
    Trouble,
)
from trainer.supervisor.machine.health import GpuReading

METRICS_KEPT = 50_000  # until `stop_by` at 28 steps a second
METRICS_SENT = 500  # in one heartbeat
OTHERS_KEPT = 1_000
VALIDATIONS_KEPT = 100  # a save that waits to be committed is never so many behind

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class HeartbeatPayload:
    """What one heartbeat carries."""

    metrics: tuple[StepMetrics, ...]
    committed: tuple[Committed, ...]
    spans: tuple[Span, ...]
    troubles: tuple[Trouble, ...]
    gpus: tuple[GpuLoad, ...]
    gpu_errors: GpuErrors | None


class HeartbeatReports:
    """Measurements, commits, spans and troubles on their way to the service."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()  # something that the service should hear at once
        self.step = 0
        self.fresh = True  # no step of the present run was heard of
        self.save_cost: SaveCost | None = None  # of the last save of this run
        self._gpus: tuple[GpuLoad, ...] = ()  # as last read, until the service has heard it
        self._gpu_errors = GpuErrors()  # since the boot, as last read
        self._gpu_errors_heard = GpuErrors()  # by the service
        self._metrics: deque[StepMetrics] = deque(maxlen=METRICS_KEPT)
        self._committed: deque[Committed] = deque(maxlen=OTHERS_KEPT)
        self._spans: deque[Span] = deque(maxlen=OTHERS_KEPT)
        self._troubles: deque[Trouble] = deque(maxlen=OTHERS_KEPT)
        self._on: dict[str, Trouble] = {}  # troubles that last, by kind
        self._validated: deque[tuple[int, float]] = deque(maxlen=VALIDATIONS_KEPT)

    def measured(self, metrics: Sequence[StepMetrics]) -> None:
        """Rank 0 has measured these; the next heartbeat is soon enough."""
        self._metrics.extend(metrics)
        losses = [(m.step, m.valid_loss) for m in metrics if m.valid_loss is not None]
        self._validated.extend((step, loss) for step, loss in losses if math.isfinite(loss))

    def spent(self, spans: Sequence[Span]) -> None:
        """The node's time went into these."""
        self._spans.extend(spans)

    def committed(self, entries: Sequence[Committed]) -> None:
        """HEAD names these."""
        self._committed.extend(entries)
        if entries:
            self.changed.set()

    def troubled(self, kind: str, message: str, since: float) -> None:
        """This delays or drops checkpoints; told once, until it is mended."""
        if kind not in self._on:
            self._on[kind] = Trouble(kind=kind, message=message, since=since)
            self._troubles.append(self._on[kind])
            self.changed.set()

    def said(self, kind: str, message: str, at: float) -> None:
        """This is what the node does now, for the user to know."""
        self._troubles.append(Trouble(kind=kind, message=message, since=at))
        self.changed.set()

    def mended(self, kind: str, now: float) -> None:
        """Trouble of this kind is over, if there was any."""
        if kind in self._on:
            self._troubles.append(replace(self._on.pop(kind), until=now))
            self.changed.set()

    def settled(self, now: float) -> None:
        """A run has ended, and with it all that delayed its checkpoints."""
        for kind in list(self._on):
            self.mended(kind, now)

    def started(self, step: int) -> None:
        """A trainer starts from the state after ``step``; its first own step will be news."""
        self.fresh = True
        self.step, self.save_cost = step, None
        self._validated.clear()

    def stepped(self, step: int) -> None:
        """The trainer has finished ``step``."""
        if self.fresh and step > self.step:
            self.changed.set()
            self.fresh = False
        self.step = step

    def batch(self) -> HeartbeatPayload:
        """The oldest that fit into one heartbeat."""
        return HeartbeatPayload(
            metrics=tuple(self._metrics)[:METRICS_SENT],
            committed=tuple(self._committed),
            spans=tuple(self._spans),
            troubles=tuple(self._troubles),
            gpus=self._gpus,
            gpu_errors=self._new_gpu_errors(),
        )

    def gpus_read(self, reading: GpuReading) -> None:
        """Keep a reading of the GPUs for the next heartbeat; errors never become fewer."""
        self._gpus = reading.loads
        now, before = vars(reading.errors), vars(self._gpu_errors)
        self._gpu_errors = GpuErrors(**{name: max(now[name], before[name]) for name in now})

    def _new_gpu_errors(self) -> GpuErrors | None:
        """Those that the service has not heard of."""
        now, heard = vars(self._gpu_errors), vars(self._gpu_errors_heard)
        new = {name: now[name] - heard[name] for name in now}
        return GpuErrors(**new) if any(new.values()) else None

    def undelivered(self, step: int) -> tuple[StepMetrics, ...]:
        """Measurements of steps up to ``step`` that the service has not answered."""
        return tuple(m for m in self._metrics if m.step <= step)

    def valid_loss(self, step: int) -> float | None:
        """As last measured in this run, up to ``step``."""
        return next((loss for at, loss in reversed(self._validated) if at <= step), None)

    def answered(self, batch: HeartbeatPayload) -> None:
        """Forget what the service has heard; go on at once where more is waiting."""
        _drop_sent(self._metrics, batch.metrics)
        _drop_sent(self._committed, batch.committed)
        _drop_sent(self._spans, batch.spans)
        _drop_sent(self._troubles, batch.troubles)
        self._gpus = () if self._gpus is batch.gpus else self._gpus
        if batch.gpu_errors:
            new, heard = vars(batch.gpu_errors), vars(self._gpu_errors_heard)
            self._gpu_errors_heard = GpuErrors(**{name: heard[name] + new[name] for name in new})
        if len(batch.metrics) == METRICS_SENT:
            self.changed.set()


def _drop_sent(kept: deque[T], heard: Sequence[T]) -> None:
    """Drop what was heard; some of it may have been pushed out meanwhile."""
    ids = {id(item) for item in heard}
    while kept and id(kept[0]) in ids:
        kept.popleft()
