"""Append each local rank's output to its log blob every two seconds, each byte once."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from azure.core import MatchConditions
from azure.storage.blob import BlobClient

from trainer.contract import ERROR_TAIL_BYTES, log_path
from trainer.supervisor.blob.container import (
    BlobError,
    BlobNotFoundError,
    BlobUnavailableError,
    JobContainer,
    PreconditionFailedError,
)

APPEND_BYTES = 4 * 2**20
BLOCKS = 50_000  # that an append blob can have


class AppendBlob:
    """One rank's log blob. Each append names its position, so a lost answer doubles nothing."""

    def __init__(self, container: JobContainer, name: str) -> None:
        self._container = container
        self._name = name
        self._position = -1  # -1: to be looked up
        self.blocks = 0
        self._pending_data = b""  # on its way
        self._is_unconfirmed = False  # it was sent without an answer

    @property
    def is_full(self) -> bool:
        """Whether the blob takes no more blocks."""
        return self.blocks >= BLOCKS

    def is_worth_a_block(self, size: int) -> bool:
        """Return whether ``size`` bytes deserve a block; stricter as blocks run out."""
        scarce = max(self.blocks - BLOCKS // 2, 0)
        return size > 0 and size >= min(scarce * 8, APPEND_BYTES)

    def set_pending(self, data: bytes) -> None:
        """Take over the next piece; ``send_pending`` sends it."""
        self._pending_data = data

    async def send_pending(self) -> None:
        """Send the pending piece; after a BlobError it stays pending."""
        while self._pending_data:
            if self._position < 0 or self._is_unconfirmed:
                await self._look_up_end()
            else:
                await self._send()

    async def _send(self) -> None:
        call = partial(
            self._blob.append_block, self._pending_data, appendpos_condition=self._position
        )
        try:
            await self._container.access.call_once(call)
        except PreconditionFailedError:
            self._position = -1  # another node wrote here, too
        except BlobUnavailableError:
            self._is_unconfirmed = True
            raise
        else:
            self._position += len(self._pending_data)
            self.blocks += 1
            self._pending_data = b""

    async def _look_up_end(self) -> None:
        """Look up the blob's end, and whether an unconfirmed piece arrived."""
        access = self._container.access
        try:
            properties = await access.call_once(self._blob.get_blob_properties)
        except BlobNotFoundError:
            new = partial(self._blob.create_append_blob, match_condition=MatchConditions.IfMissing)
            with suppress(PreconditionFailedError):  # another node created it first
                await access.call_once(new)
            return
        if self._is_unconfirmed and properties.size == self._position + len(self._pending_data):
            self._pending_data = b""
        self._position, self._is_unconfirmed = properties.size, False
        self.blocks = properties.append_blob_committed_block_count or 0

    @property
    def _blob(self) -> BlobClient:
        return self._container.blob(self._name)


class RankLogUpload:
    """One local rank's output files, and how far they were sent."""

    def __init__(self, files: Callable[[], list[Path]], blob: AppendBlob) -> None:
        self._files = files
        self._blob = blob
        self._read_offsets: dict[Path, int] = {}

    async def flush(self, *, last: bool) -> None:
        """Send new output; half lines wait for their end."""
        await self._blob.send_pending()
        for path in self._files():
            while piece := self._read_piece(path, last=last):
                if self._blob.is_full or not (last or self._blob.is_worth_a_block(len(piece))):
                    break
                self._read_offsets[path] = self._read_offsets.get(path, 0) + len(piece)
                self._blob.set_pending(piece)
                await self._blob.send_pending()

    def tail(self, size: int) -> str:
        """Return the last ``size`` bytes of each file."""
        return "".join(_tail(path, size) for path in self._files())

    def _read_piece(self, path: Path, *, last: bool) -> bytes:
        with path.open("rb") as file:
            file.seek(self._read_offsets.get(path, 0))
            piece = file.read(APPEND_BYTES)
        if last or len(piece) == APPEND_BYTES:
            return piece
        return piece[: piece.rfind(b"\n") + 1]


class LogUploads:
    """The logs of all local ranks of one generation."""

    def __init__(
        self, container: JobContainer, attempt_id: str, ranks: range, folder: Path
    ) -> None:
        self._folder = folder
        self._ranks = {
            rank: RankLogUpload(
                partial(self._files, local), AppendBlob(container, log_path(attempt_id, rank))
            )
            for local, rank in enumerate(ranks)
        }

    async def flush(self, *, last: bool = False) -> list[str]:
        """Send all new output; return errors, to be retried next time."""
        errors = []
        for log in self._ranks.values():
            try:
                await log.flush(last=last)
            except (BlobError, OSError) as e:
                errors.append(str(e))
        return errors

    def tail(self, ranks: list[int]) -> str:
        """Return the last 64 KiB of these ranks' output, or of the launcher's if there is none."""
        share = ERROR_TAIL_BYTES // max(len(ranks), 1) // 2  # each has two files
        output = "".join(self._ranks[r].tail(share) for r in ranks)
        return output or self.launcher_tail()

    def launcher_tail(self) -> str:
        """Return the last 64 KiB of the launcher's own output."""
        return _tail(self._folder / "launcher.log", ERROR_TAIL_BYTES)

    def _files(self, local: int) -> list[Path]:
        """Return torchrun's output files of one local rank."""
        return sorted(self._folder.glob(f"*/attempt_*/{local}/std*.log"))


def _tail(path: Path, size: int) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - size, 0))
            return file.read(size).decode(errors="replace")
    except FileNotFoundError:
        return ""
