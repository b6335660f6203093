"""Watch: takes snapshots during the kills and checks them for broken promises."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import httpx
import psutil

from bench.recovery import invariants
from bench.recovery.book import Book, ObservedGeneration
from bench.recovery.observed import blobs, disk
from bench.recovery.observed.blobs import Containers
from bench.recovery.observed.cluster import ClusterView, Snapshot, SnapshotAttempt, Vm

SNAPSHOT_SECONDS = 0.25


class Watch:
    """The newest snapshot; findings are written to the book."""

    def __init__(self, view: ClusterView, containers: Containers, book: Book) -> None:
        self._view = view
        self._containers = containers
        self._book = book
        self._pending_checks: set[asyncio.Task[None]] = set()
        self._verified: set[str] = set()  # verified checkpoints
        self.jobs: set[str] = set()
        self.snapshot = Snapshot(at=0.0)
        self.callbacks: list[Callable[[], None]] = []

    async def run(self) -> None:
        """Take snapshots until cancelled."""
        while True:
            start = time.monotonic()
            with suppress(httpx.TransportError):  # emulator busy; the next snapshot follows
                await self.take_snapshot()
            await asyncio.sleep(max(SNAPSHOT_SECONDS - (time.monotonic() - start), 0.02))

    async def take_snapshot(self) -> Snapshot:
        """Take one snapshot, check it and record new generations."""
        self.snapshot = snapshot = await self._view.take_snapshot(self.jobs)
        self._book.snapshots += 1
        self._book.doubled |= set(invariants.doubled(snapshot))
        for scale_set in snapshot.sets:
            self._book.sets_created_at.setdefault(scale_set.attempt, scale_set.created_at)
            self._book.engines[scale_set.attempt] = scale_set.engine
        for attempt, vm in self._running(snapshot):
            self._note_boot(attempt, vm)
            self._note_run(attempt, vm)
        for notify in self.callbacks:
            notify()
        return snapshot

    async def verify(self, job: str, *, entries: list[blobs.Entry] | None = None) -> None:
        """Download and verify the checkpoints that HEAD names, or only ``entries``."""
        container = self._containers.of(job)
        if entries is None:
            entries = blobs.named_entries(await asyncio.to_thread(blobs.head, container))
        for entry in entries:
            name = f"{job}/{entry['path']}"
            faults = await asyncio.to_thread(blobs.torn, container, entry)
            self._book.torn |= set(faults)
            if name not in self._verified and not faults:
                self._verified.add(name)
                self._book.checked_checkpoints += 1

    async def wait_for_checks(self) -> None:
        """Wait for the pending checks."""
        await asyncio.gather(*self._pending_checks)

    def _running(self, snapshot: Snapshot) -> Iterator[tuple[SnapshotAttempt, Vm]]:
        for attempt in snapshot.attempts.values():
            for vm in snapshot.machines(attempt.id):
                if vm.pid is not None:
                    yield attempt, vm

    def _note_boot(self, attempt: SnapshotAttempt, vm: Vm) -> None:
        with suppress(psutil.NoSuchProcess):
            booted_at = psutil.Process(vm.pid).create_time()
            previous = self._book.machines_up_at.get(attempt.id, 0.0)
            self._book.machines_up_at[attempt.id] = max(booted_at, previous)

    def _note_run(self, attempt: SnapshotAttempt, vm: Vm) -> None:
        run = disk.newest_run(vm.work)
        row = disk.generation(run) if run else None
        if run is None or row is None:
            return
        loaded = row["checkpoint"]
        step = loaded["step"] if loaded else 0
        generation = ObservedGeneration(
            job=attempt.job,
            number=run.number,
            attempt=attempt.id,
            loaded_step=step,
            first_step_at=run.first_step_at,
            last_step=max(run.progress or 0, step),
        )
        if self._book.note_generation(generation) and loaded:
            check = asyncio.create_task(self._check_resume(attempt.job, run.number, loaded))
            self._pending_checks.add(check)
            check.add_done_callback(self._pending_checks.discard)

    async def _check_resume(self, job: str, number: int, loaded: blobs.Entry) -> None:
        """Check that the checkpoint that a generation loads is named by HEAD and complete."""
        head = await asyncio.to_thread(blobs.head, self._containers.of(job))
        if loaded not in blobs.named_entries(head):
            self._book.torn.add(
                f"{job}: generation {number} loads {loaded['path']}, which HEAD does not name"
            )
        await self.verify(job, entries=[loaded])
