"""What must never happen in the simulated world, whatever is lost, doubled, late or killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer.contract import MANIFEST, Committed, Generation, Head, Manifest

if TYPE_CHECKING:
    from service.domain.lifecycle.node import NodeRecord
    from tests.unit.contract_blob import Blob
    from tests.unit.contract_vm import Trainer


class Violation(AssertionError):
    """Something happened that the contract rules out; ``rule`` names it."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule


class Judge:
    """Told of every event that could break a promise; raises Violation when one does."""

    def __init__(self, *, list_is_true: bool = True) -> None:
        self.list_is_true = list_is_true
        self.rows: dict[int, Generation] = {}
        self.launched: set[tuple[str, int]] = set()
        self.heard: dict[str, tuple[int, int]] = {}
        self.commits = 0

    def head_written(self, old: Head, new: Head, blob: Blob) -> None:
        """HEAD's generation never falls, and only the generation that holds it adds to it."""
        if new.generation < old.generation:
            raise Violation("HEAD goes back", f"{old.generation} to {new.generation}")
        added = [c for c in (*new.checkpoints, new.model) if c and c not in old.checkpoints]
        if new.model == old.model:
            added = [c for c in added if c != new.model]
        for entry in added:
            self._committed(old, entry, blob)
        if not added and old.newest != new.newest:
            raise Violation("a commit is lost", f"{old.newest} to {new.newest}")

    def _committed(self, old: Head, entry: Committed, blob: Blob) -> None:
        self.commits += 1
        if entry.generation != old.generation:
            what = f"{entry.path} of generation {entry.generation}, HEAD is {old.generation}'s"
            raise Violation("a stale generation commits", what)
        if old.newest and entry.step < old.newest.step:
            raise Violation("progress goes back", f"{old.newest.step} to {entry.step}")
        if entry.path in [c.path for c in old.checkpoints]:
            raise Violation("a checkpoint is committed twice", entry.path)
        self.whole(entry, blob)

    def whole(self, entry: Committed, blob: Blob) -> None:
        """Every file that the manifest names is there as it was, and all are of one save."""
        found = blob.read(f"{entry.path}/{MANIFEST}")
        if found is None:
            raise Violation("a torn checkpoint", f"{entry.path} has no manifest")
        manifest: Manifest = found[1]
        for rank, file in enumerate(manifest.files):
            there = blob.read(f"{entry.path}/{file.name}")
            if there is None or there[0] != file.etag:
                raise Violation("a torn checkpoint", f"{entry.path}/{file.name} is not as named")
            if there[1] != (entry.generation, entry.step, rank):
                raise Violation("a torn checkpoint", f"{file.name} is of another save: {there[1]}")
        writers = 1 if entry.kind == "final" else entry.world_size
        if len(manifest.files) != writers:
            raise Violation("a torn checkpoint", f"{len(manifest.files)} files of {writers}")

    def row_written(self, row: Generation, head: Head) -> None:
        """A number is used once, and only after HEAD was taken for it."""
        if row.number in self.rows:
            raise Violation("a number is used twice", str(row.number))
        if head.generation != row.number:
            raise Violation("opened before HEAD was taken", f"{row.number}, HEAD {head.generation}")
        if not row.master_port:
            raise Violation("ranks cannot meet", f"{row.number} has no port")
        if head.model:
            raise Violation("a finished job is trained again", f"{row.number}")
        if row.checkpoint != head.newest:
            raise Violation("not the newest checkpoint", f"{row.checkpoint} not {head.newest}")
        self.rows[row.number] = row

    def loaded(self, row: Generation, blob: Blob) -> None:
        """What a trainer loads is whole, and is what the row names."""
        if self.rows[row.number] != row:
            raise Violation("two rows of one number", str(row.number))
        if row.checkpoint:
            self.whole(row.checkpoint, blob)

    def trainer_started(self, vm_id: str, trainer: Trainer, others: list[Trainer]) -> None:
        """``others``: every trainer that lives now, on any node of the same attempt."""
        number = trainer.row.number
        if (vm_id, number) in self.launched:
            raise Violation("a generation is started twice on a node", f"{vm_id}, {number}")
        self.launched.add((vm_id, number))
        if any(o.vm_id == vm_id for o in others):
            raise Violation("two trainers on a node", vm_id)
        older = {o.row.number for o in others} - {number}
        if older and self.list_is_true:
            raise Violation("two generations run", f"{number} beside {older}")

    def registered(self, records: list[NodeRecord]) -> None:
        """One VM is one node."""
        if len({(r.attempt_id, r.vm_id) for r in records}) != len(records):
            raise Violation("two nodes of one VM", f"{[r.vm_id for r in records]}")

    def heard_from(self, record: NodeRecord, said: tuple[int, int]) -> None:
        """What the service believes of a node never becomes older; ``said`` is (epoch, seq)."""
        before = self.heard.get(record.vm_id, (0, 0))
        if said < before:
            raise Violation("older news is believed", f"{said} after {before}")
        self.heard[record.vm_id] = said
