"""Data for the next heartbeats, kept until the service has answered, and bounded."""

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

MAX_QUEUED_METRICS = 50_000  # until `stop_by` at 28 steps a second
METRICS_SENT = 500  # in one heartbeat
MAX_QUEUED_OTHERS = 1_000
MAX_VALIDATIONS = 100  # more than a waiting save can be behind

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
    """Metrics, commits, spans and troubles on their way to the service."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()  # something that the service should hear at once
        self.step = 0
        self.fresh = True  # no step of the present run was heard of
        self.save_cost: SaveCost | None = None  # of the last save of this run
        self._gpus: tuple[GpuLoad, ...] = ()  # as last read, until the service has heard it
        self._gpu_errors = GpuErrors()  # since the boot, as last read
        self._gpu_errors_delivered = GpuErrors()  # by the service
        self._metrics: deque[StepMetrics] = deque(maxlen=MAX_QUEUED_METRICS)
        self._committed: deque[Committed] = deque(maxlen=MAX_QUEUED_OTHERS)
        self._spans: deque[Span] = deque(maxlen=MAX_QUEUED_OTHERS)
        self._troubles: deque[Trouble] = deque(maxlen=MAX_QUEUED_OTHERS)
        self._active_troubles: dict[str, Trouble] = {}  # troubles that last, by kind
        self._validated: deque[tuple[int, float]] = deque(maxlen=MAX_VALIDATIONS)

    def add_metrics(self, metrics: Sequence[StepMetrics]) -> None:
        """Add metrics of rank 0 for the next regular heartbeat."""
        self._metrics.extend(metrics)
        losses = [(m.step, m.valid_loss) for m in metrics if m.valid_loss is not None]
        self._validated.extend((step, loss) for step, loss in losses if math.isfinite(loss))

    def add_spans(self, spans: Sequence[Span]) -> None:
        """Add spans of the node's time."""
        self._spans.extend(spans)

    def add_committed(self, entries: Sequence[Committed]) -> None:
        """Add checkpoints that HEAD names now."""
        self._committed.extend(entries)
        if entries:
            self.changed.set()

    def begin_trouble(self, kind: str, message: str, since: float) -> None:
        """Report a trouble that delays checkpoints, once until it ends."""
        if kind not in self._active_troubles:
            self._active_troubles[kind] = Trouble(kind=kind, message=message, since=since)
            self._troubles.append(self._active_troubles[kind])
            self.changed.set()

    def add_notice(self, kind: str, message: str, at: float) -> None:
        """Report what the node does now, for the user."""
        self._troubles.append(Trouble(kind=kind, message=message, since=at))
        self.changed.set()

    def end_trouble(self, kind: str, now: float) -> None:
        """Report that trouble of this kind is over, if there was any."""
        if kind in self._active_troubles:
            self._troubles.append(replace(self._active_troubles.pop(kind), until=now))
            self.changed.set()

    def end_all_troubles(self, now: float) -> None:
        """End all troubles: the run has ended."""
        for kind in list(self._active_troubles):
            self.end_trouble(kind, now)

    def begin_run(self, step: int) -> None:
        """Record that a trainer starts from the state after ``step``."""
        self.fresh = True
        self.step, self.save_cost = step, None
        self._validated.clear()

    def record_step(self, step: int) -> None:
        """Record that the trainer has finished ``step``."""
        if self.fresh and step > self.step:
            self.changed.set()
            self.fresh = False
        self.step = step

    def next_payload(self) -> HeartbeatPayload:
        """Return the oldest data that fits into one heartbeat."""
        return HeartbeatPayload(
            metrics=tuple(self._metrics)[:METRICS_SENT],
            committed=tuple(self._committed),
            spans=tuple(self._spans),
            troubles=tuple(self._troubles),
            gpus=self._gpus,
            gpu_errors=self._new_gpu_errors(),
        )

    def record_gpus(self, reading: GpuReading) -> None:
        """Keep a reading of the GPUs for the next heartbeat; counts never fall."""
        self._gpus = reading.loads
        now, before = vars(reading.errors), vars(self._gpu_errors)
        self._gpu_errors = GpuErrors(**{name: max(now[name], before[name]) for name in now})

    def _new_gpu_errors(self) -> GpuErrors | None:
        """Return the GPU errors that the service has not been told."""
        now, delivered = vars(self._gpu_errors), vars(self._gpu_errors_delivered)
        new = {name: now[name] - delivered[name] for name in now}
        return GpuErrors(**new) if any(new.values()) else None

    def undelivered(self, step: int) -> tuple[StepMetrics, ...]:
        """Return metrics up to ``step`` that the service has not answered."""
        return tuple(m for m in self._metrics if m.step <= step)

    def valid_loss(self, step: int) -> float | None:
        """Return the last validation loss of this run, up to ``step``."""
        return next((loss for at, loss in reversed(self._validated) if at <= step), None)

    def mark_delivered(self, batch: HeartbeatPayload) -> None:
        """Drop what the service has answered; send at once if more waits."""
        _drop_sent(self._metrics, batch.metrics)
        _drop_sent(self._committed, batch.committed)
        _drop_sent(self._spans, batch.spans)
        _drop_sent(self._troubles, batch.troubles)
        self._gpus = () if self._gpus is batch.gpus else self._gpus
        if batch.gpu_errors:
            new, delivered = vars(batch.gpu_errors), vars(self._gpu_errors_delivered)
            self._gpu_errors_delivered = GpuErrors(
                **{name: delivered[name] + new[name] for name in new}
            )
        if len(batch.metrics) == METRICS_SENT:
            self.changed.set()


def _drop_sent(queue: deque[T], sent: Sequence[T]) -> None:
    """Drop sent items; some may have been pushed out meanwhile."""
    ids = {id(item) for item in sent}
    while queue and id(queue[0]) in ids:
        queue.popleft()
