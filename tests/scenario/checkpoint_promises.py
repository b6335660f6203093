"""What must hold of HEAD, of checkpoints, and of who trains: looked at when it happens."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from service.storage.fake import MemoryStore
from service.storage.store import BlobNotFound
from tests.scenario.machines.trainer_process import TrainerProcess
from trainer.contract import HEAD, MANIFEST, Committed, Generation, Head, Manifest


@dataclass
class WatchedStore(MemoryStore):
    """A store that looks at every write of HEAD, whoever writes."""

    broken: list[str] = field(default_factory=list)  # promises, with what shows it

    async def write(
        self, container: str, name: str, data: bytes, *, if_match: str = "", if_absent: bool = False
    ) -> str:
        old = self._containers.get(container, {}).get(name) if name == HEAD else None
        etag = await super().write(container, name, data, if_match=if_match, if_absent=if_absent)
        if old is not None and data.startswith(b"{") and b"generation" in data:
            await self._compare(container, Head.from_json(old.data), Head.from_json(data))
        return etag

    async def _compare(self, container: str, old: Head, new: Head) -> None:
        """Check that HEAD's generation never falls, and that only this generation adds to it."""
        if new.generation < old.generation:
            self.broken.append(f"HEAD goes back from {old.generation} to {new.generation}")
        added = [c for c in new.checkpoints if c.path not in old.paths]
        added += [new.model] if new.model and new.model != old.model else []
        for entry in added:
            await self._check_commit(container, old, entry)
        missing = old.newest if old.newest and old.newest.path not in new.paths else None
        if missing and not added and not await self.damaged(container, missing):
            self.broken.append(f"the commit {missing.path} is lost")

    async def _check_commit(self, container: str, old: Head, entry: Committed) -> None:
        if entry.generation != old.generation:
            self.broken.append(
                f"a stale generation commits {entry.path}; HEAD is {old.generation}'s"
            )
        if old.newest and entry.step < old.newest.step:
            self.broken.append(f"progress goes back from step {old.newest.step} to {entry.step}")
        if old.model is not None:
            self.broken.append(f"{entry.path} is committed to a job that has its model")
        if damaged := await self.damaged(container, entry):
            self.broken.append(f"a torn checkpoint is committed: {entry.path}: {damaged}")

    async def damaged(self, container: str, entry: Committed) -> list[str]:
        """Return the files of a checkpoint that are not there as its manifest says."""
        try:
            data, _ = await self.read(container, f"{entry.path}/{MANIFEST}")
        except BlobNotFound:
            return [MANIFEST]
        if hashlib.sha256(data).hexdigest() != entry.manifest_sha256:
            return [MANIFEST]
        manifest = Manifest.from_json(data)
        etags = {b.name: b.etag for b in await self.list_blobs(container, f"{entry.path}/")}
        files = [f.name for f in manifest.files if etags.get(f"{entry.path}/{f.name}") != f.etag]
        writers = {f.name.partition(".")[0] for f in manifest.files}
        is_complete = entry.kind == "final" or len(writers) == entry.world_size
        return files if is_complete else [*files, f"only {sorted(writers)}"]


@dataclass
class TrainerWatch:
    """Looks at every launch of a training process."""

    store: WatchedStore
    broken: list[str] = field(default_factory=list)  # promises, with what shows it
    living: Callable[[str], Iterable[TrainerProcess]] = lambda _: ()  # of an attempt
    launched: set[tuple[str, int]] = field(default_factory=set)

    async def damaged(self, job_id: str, entry: Committed) -> list[str]:
        """Return the files of a checkpoint that cannot be loaded."""
        return await self.store.damaged(job_id, entry)

    def claim(self, generation: Generation, head: Head) -> None:
        """Check that HEAD was taken for the row before, and that it names the newest checkpoint."""
        number = generation.number
        if head.generation < number:
            self.broken.append(f"generation {number} is opened before HEAD was taken")
        if head.generation != number:
            return
        if not generation.master_port:
            self.broken.append(f"the ranks of generation {number} cannot meet")
        if head.model:
            self.broken.append(f"a finished job is trained again in generation {number}")
        older = [c for c in head.checkpoints if c.generation < number]
        newest = older[-1] if older else None
        began_at = generation.checkpoint.path if generation.checkpoint else ""
        if (newest.path if newest else "") != began_at:
            self.broken.append(f"generation {number} loads {began_at or 'nothing'}, not the newest")

    def start(self, attempt_id: str, trainer: TrainerProcess) -> None:
        """Check that a node starts a generation once, and that one runs at a time in an attempt."""
        number = trainer.generation.number
        if (trainer.vm_id, number) in self.launched:
            self.broken.append(f"generation {number} is started twice on {trainer.vm_id}")
        self.launched.add((trainer.vm_id, number))
        for peer in self.living(attempt_id):
            if peer is trainer:
                continue
            if peer.vm_id == trainer.vm_id:
                self.broken.append(f"two trainers run on {trainer.vm_id}")
            if peer.generation.number != number:
                self.broken.append(f"generations {peer.generation.number} and {number} both run")
