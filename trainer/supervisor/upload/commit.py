"""Commit a checkpoint: its manifest, then one compare-and-swap of HEAD. Node rank 0 only."""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence

from trainer.contract import (
    HEAD,
    MANIFEST,
    MEASURED,
    RUN_SPEC,
    Committed,
    FileEntry,
    Generation,
    Head,
    Manifest,
    Retention,
    RunSpec,
    StaleGeneration,
    StepMetrics,
)
from trainer.rundir import RankSave, SavedFile, rank_record
from trainer.supervisor.blob.container import (
    BlobError,
    BlobUnavailableError,
    JobContainer,
    ListedBlob,
    PreconditionFailedError,
)
from trainer.supervisor.blob.transfer import CorruptError
from trainer.supervisor.clock import NodeClock
from trainer.supervisor.concurrency import gather_or_cancel

SWAP_ATTEMPTS = 8

log = logging.getLogger(__name__)


async def read_head(container: JobContainer) -> tuple[Head, str]:
    """Return HEAD and its ETag."""
    data, etag = await container.read(HEAD)
    return Head.from_json(data), etag


class Committer:
    """Commits the saves of one generation once every writer's record is in Blob."""

    def __init__(
        self,
        container: JobContainer,
        generation: Generation,
        clock: NodeClock,
        undelivered: Callable[[int], Sequence[StepMetrics]] = lambda _: (),
        valid_loss: Callable[[int], float | None] = lambda _: None,
    ) -> None:
        self._container = container
        self._undelivered = undelivered
        self._valid_loss = valid_loss
        self._retention: Retention | None = None  # the job's, once its run spec was read
        self._generation = generation
        self._clock = clock
        self._pending: dict[str, RankSave] = {}
        self.dropped: list[str] = []  # folders that HEAD does not name any more

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits for a commit."""
        return not self._pending

    def expect_commit(self, save: RankSave) -> None:
        """Record that this node's part of the save is in Blob; peers' parts will follow."""
        self._pending[save.path] = save

    async def expect_earlier_saves(self) -> Committed | None:
        """Expect what an earlier supervisor of rank 0's node sent and did not commit.

        Returns the model that HEAD names, if it does.
        """
        head, _ = await read_head(self._container)
        named = {c.path for c in head.checkpoints}
        for folder in ("checkpoints/", "models/"):
            stored = await self._container.list_blobs(folder)
            for name in stored:
                path, _, record = f"{folder}{name}".rpartition("/")
                if record == rank_record(0) and path not in named:
                    await self._expect_earlier_save(f"{path}/{record}", head)
        return head.model

    async def commit_complete(self) -> list[Committed]:
        """Commit what is complete in Blob, oldest first. May raise StaleGeneration."""
        done = []
        for save in sorted(self._pending.values(), key=lambda s: s.step):
            try:
                entry = await self._commit(save)
            except CorruptError as e:
                log.error("checkpoint.refused reason=%s", e)  # noqa: TRY400 - the reason is all
                del self._pending[save.path]
                continue
            if entry is not None:
                done.append(entry)
                self._drop_pending(entry)
        return done

    async def delete_dropped(self) -> None:
        """Delete the checkpoints that HEAD has dropped, manifest first; best effort."""
        while self.dropped:
            prefix = f"{self.dropped.pop()}/"
            try:
                names = await self._container.list_blobs(prefix)
                for name in sorted(names, key=lambda n: n != MANIFEST):
                    await self._container.delete(prefix + name)
            except BlobError as e:
                log.warning("checkpoint.not_deleted path=%s reason=%s", prefix, e)

    async def _expect_earlier_save(self, record: str, head: Head) -> None:
        data, _ = await self._container.read(record)
        save = RankSave.from_json(data)
        newest = head.newest.step if head.newest else -1
        is_current = save.generation == self._generation.number == head.generation
        if is_current and save.step >= newest and not (save.kind == "final" and head.model):
            self.expect_commit(save)

    async def _commit(self, save: RankSave) -> Committed | None:
        manifest = await self._collect_manifest(save)
        if manifest is None:
            return None
        await self._store_metrics(save)
        entry = await self._write_manifest(save.path, manifest)
        await self._swap_head(entry)
        return entry

    async def _store_metrics(self, save: RankSave) -> None:
        """Store undelivered metrics: no later generation repeats these steps."""
        if lines := [m.to_json() for m in self._undelivered(save.step)]:
            await self._container.overwrite(f"{save.path}/{MEASURED}", "\n".join(lines).encode())

    async def _collect_manifest(self, save: RankSave) -> Manifest | None:
        """Return the manifest of a save, or None while a writer's part is missing."""
        stored = await self._container.list_blobs(f"{save.path}/")
        names = [rank_record(rank) for rank in range(save.writers)]
        if not all(name in stored for name in names):
            return None
        reads = await gather_or_cancel(
            self._container.read(f"{save.path}/{name}") for name in names
        )
        records = [RankSave.from_json(data) for data, _ in reads]
        return build_manifest(records, stored, self._generation)

    async def _write_manifest(self, path: str, manifest: Manifest) -> Committed:
        data = manifest.to_json().encode()
        await self._container.write_new(f"{path}/{MANIFEST}", data)
        return Committed(
            path=path,
            step=manifest.step,
            consumed_samples=manifest.consumed_samples,
            world_size=manifest.world_size,
            generation=manifest.generation,
            kind=manifest.kind,
            size=manifest.size,
            manifest_sha256=hashlib.sha256(data).hexdigest(),
            committed_at=self._clock.now(),
            parameters_sha256=manifest.parameters_sha256,
            valid_loss=self._valid_loss(manifest.step),
        )

    async def _swap_head(self, entry: Committed) -> None:
        """Make HEAD name the entry; after any failed write HEAD is read again."""
        dropped: set[str] = set()
        retention = await self._read_retention()
        checkpoint = self._generation.checkpoint
        loaded = checkpoint.path if checkpoint else ""
        for attempt in range(SWAP_ATTEMPTS):
            head, etag = await read_head(self._container)
            if is_named(head, entry):
                self.dropped += sorted(dropped - {c.path for c in head.checkpoints})
                return
            if entry.kind == "final":
                new = head.with_model(entry, retention)
            else:
                new = head.with_checkpoint(entry, retention, loaded)
            dropped |= {c.path for c in head.checkpoints} - {c.path for c in new.checkpoints}
            try:
                await self._container.write(HEAD, new.to_json().encode(), if_match=etag)
            except (PreconditionFailedError, BlobUnavailableError) as e:
                log.warning("head.not_written path=%s reason=%s", entry.path, e)
                await asyncio.sleep(0.1 * attempt)
        raise BlobUnavailableError(f"{HEAD}: could not be written in {SWAP_ATTEMPTS} attempts")

    async def _read_retention(self) -> Retention:
        """Return the job's retention; its run spec never changes."""
        if self._retention is None:
            data, _ = await self._container.read(RUN_SPEC)
            self._retention = RunSpec.from_json(data).retention
        return self._retention

    def _drop_pending(self, entry: Committed) -> None:
        """Forget the entry, and older checkpoints that HEAD would refuse now."""
        del self._pending[entry.path]
        late = [p for p, s in self._pending.items() if s.step < entry.step and s.kind != "final"]
        for path in late:
            del self._pending[path]


def is_named(head: Head, entry: Committed) -> bool:
    """Return whether HEAD names exactly this entry's manifest."""
    named = (*head.checkpoints, *((head.model,) if head.model else ()))
    return any((c.path, c.manifest_sha256) == (entry.path, entry.manifest_sha256) for c in named)


def build_manifest(
    records: Sequence[RankSave], stored: Mapping[str, ListedBlob], generation: Generation
) -> Manifest:
    """Build the manifest of a save from all writers' records and its folder's listing."""
    first = records[0]
    if any(_agreed_members(record) != _agreed_members(first) for record in records):
        raise CorruptError(f"{first.path}: the ranks' records disagree about what was saved")
    if first.generation != generation.number:
        raise StaleGeneration(f"{first.path} was saved by generation {first.generation}")
    files = [_file_entry(first.path, f, stored) for r in records for f in r.files]
    if len({f.name for f in files}) < len(files):
        raise CorruptError(f"{first.path}: two ranks wrote a file of the same name")
    return Manifest(
        step=first.step,
        consumed_samples=first.consumed_samples,
        world_size=first.world_size,
        generation=first.generation,
        kind=first.kind,
        files=tuple(sorted(files, key=lambda f: f.name)),
        run_spec_sha256=generation.run_spec_sha256,
        saved_at=max(r.saved_at for r in records),
        parameters_sha256=first.parameters_sha256,
    )


def _agreed_members(record: RankSave) -> tuple[object, ...]:
    """Return the members in which all ranks' records must agree."""
    members = (record.path, record.writers, record.step, record.consumed_samples)
    return (*members, record.world_size, record.generation, record.kind, record.parameters_sha256)


def _file_entry(path: str, file: SavedFile, stored: Mapping[str, ListedBlob]) -> FileEntry:
    blob = stored.get(file.name)
    if blob is None or (blob.size, blob.crc64nvme) != (file.size, file.crc64nvme):
        raise CorruptError(
            f"{path}/{file.name}: the blob is not what the rank's record says ({blob})"
        )
    return FileEntry(
        name=file.name,
        size=file.size,
        etag=blob.etag,
        crc64nvme=file.crc64nvme,
        block_size=file.block_size,
        blocks=file.blocks,
        sha256=file.sha256,
        block_sha256=file.block_sha256,
    )
