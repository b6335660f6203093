"""Write TensorBoard event files to the job's container, each as a whole, so that repeats are safe.

A file has the steps of one block. Its name and its bytes follow from them.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby

from contract import events_file
from service.storage.store import BlobStore, StorageError
from service.trackers.tracker import Point, TrackerError, TrackerRun

FOLDER = "tensorboard"


@dataclass(frozen=True, kw_only=True)
class TensorBoard:
    """Event files of jobs below ``FOLDER`` in their containers."""

    store: BlobStore
    interval: timedelta = timedelta(seconds=30)
    block_steps: int = 500

    async def send(self, run: TrackerRun, points: Sequence[Point]) -> str:
        """See the protocol. TensorBoard reads the files of a folder in the order of their names."""
        for number, block in groupby(points, lambda point: (point.step - 1) // self.block_steps):
            data = await asyncio.to_thread(_as_events, run.started_at, list(block))
            name = f"{FOLDER}/events.out.tfevents.{number * self.block_steps + 1:010d}.rekindle"
            try:
                await self.store.write(run.job_id, name, data)
            except StorageError as fault:
                raise TrackerError(f"Blob Storage refused {name}: {fault}") from fault
        return self.store.blob_url(run.job_id, FOLDER)

    async def close(self) -> None:
        """Do nothing: the service owns the store."""


def _as_events(started_at: float, points: Sequence[Point]) -> bytes:
    parts = [events_file.event(point.at, point.step, point.values) for point in points]
    return b"".join([events_file.beginning(started_at), *parts])
