"""Upload saves from the outbox: data files first, then the ranks' records; then delete them."""

import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from trainer.rundir import RankSave, RunDir, SavedFile, rank_record
from trainer.supervisor.blob.container import JobContainer
from trainer.supervisor.blob.transfer import CorruptError, UploadRateLimiter, upload_file
from trainer.supervisor.concurrency import gather_or_cancel


class Outbox:
    """The outbox of one generation on this node, whose ranks are ``ranks``."""

    def __init__(
        self,
        container: JobContainer,
        folder: RunDir,
        ranks: range,
        rate_limiter: UploadRateLimiter | None = None,
    ) -> None:
        self._container = container
        self._folder = folder
        self._ranks = ranks
        self._rate_limiter = rate_limiter
        self.sent = 0  # bytes of data

    async def send_next(self) -> RankSave | None:
        """Upload the oldest save that is complete on this node; None when there is none."""
        saves = self.complete_saves()
        if not saves:
            return None
        save = saves[0][0]
        try:
            await self._send(saves[0])
        except CorruptError:
            self.set_aside(save)
            raise
        return save

    def set_aside(self, save: RankSave) -> None:
        """Move a save that can never be sent out of the outbox; it stays on the disk."""
        folder = self._folder.save_folder(save.path)
        refused = self._folder.root / "refused"
        refused.mkdir(exist_ok=True)
        folder.rename(refused / folder.name)

    def complete_saves(self) -> list[list[RankSave]]:
        """Return the records of each save that is complete on this node, oldest first."""
        saves = [r for f in _folders(self._folder.outbox) if (r := self._records(f))]
        return sorted(saves, key=lambda records: records[0].step)

    def _records(self, folder: Path) -> list[RankSave]:
        """Return the local ranks' records; none while one is missing."""
        paths = [p for rank in self._ranks if (p := folder / rank_record(rank)).exists()]
        records = [RankSave.from_json(p.read_bytes()) for p in paths]
        if not records or len(records) < sum(r < records[0].writers for r in self._ranks):
            return []
        return records

    async def _send(self, records: list[RankSave]) -> None:
        folder = self._folder.save_folder(records[0].path)
        sent = await gather_or_cancel(
            gather_or_cancel(self._send_file(folder, record.path, file) for file in record.files)
            for record in records
        )
        self.sent += sum(file.size for record in records for file in record.files)
        for record, files in zip(records, sent, strict=True):
            data = replace(record, files=tuple(files)).to_json().encode()
            await self._container.write_new(f"{record.path}/{record.name}", data)
        self._drop(folder)

    def _drop(self, folder: Path) -> None:
        """Move the folder out of the outbox atomically, then delete it."""
        sent = self._folder.root / "sent"
        sent.mkdir(exist_ok=True)
        moved = folder.rename(sent / folder.name)
        shutil.rmtree(moved, ignore_errors=True)  # a trainer that makes room deletes it too

    async def _send_file(self, folder: Path, blob_path: str, file: SavedFile) -> SavedFile:
        """Upload the file; return its record with SHA-256."""
        access, blob = self._container.access, self._container.blob(f"{blob_path}/{file.name}")
        try:
            hashes = await upload_file(
                access, blob, folder / file.name, file.crc64nvme, self._rate_limiter, file.blocks
            )
        except FileNotFoundError as e:
            raise CorruptError(f"{file.name}: a rank's record names it, but it is not there") from e
        return replace(file, block_sha256=hashes)


def _folders(outbox: Path) -> Iterable[Path]:
    return sorted(p for p in outbox.iterdir() if p.is_dir()) if outbox.is_dir() else ()
