"""The job's container in Blob as a node reaches it: over a wire that loses requests and answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random

from awscrt import checksums

from service.storage import store as storage
from service.storage.fake import MemoryStore
from trainer.supervisor.blob.container import JobContainer, ListedBlob
from trainer.supervisor.blob.errors import (
    BlobNotFoundError,
    BlobUnavailableError,
    PreconditionFailedError,
)

_LOST, _UNANSWERED, _LATE = 0.05, 0.10, 0.15  # bounds of what the dice say about a request


class BlobWire:
    """Decides what happens to each request; ``late`` holds those that are still on their way."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.is_faulty = False
        self.late: list[Callable[[], Awaitable[object]]] = []

    async def send(self, request: Callable[[], Awaitable[str]]) -> str:
        """Deliver a write. Raises BlobUnavailableError, though it may be done, now or later."""
        draw = self.dice.random() if self.is_faulty else 1.0
        if draw < _LOST:
            raise BlobUnavailableError("the request is lost")
        if _UNANSWERED <= draw < _LATE:
            self.late.append(request)
            raise BlobUnavailableError("the request takes long")
        answer = await request()
        if draw < _UNANSWERED:
            raise BlobUnavailableError("the answer is lost")
        return answer

    async def deliver_late(self) -> None:
        """Deliver what is still on its way, whether its sender lives or not."""
        late, self.late = self.late, []
        for request in late:
            try:
                await request()
            except storage.StorageError:
                continue  # HEAD has another ETag by now


class WiredContainer(JobContainer):
    """What the real Committer works with, on the service's fake store."""

    def __init__(self, store: MemoryStore, name: str, wire: BlobWire) -> None:
        self._store, self._name, self._wire = store, name, wire

    async def read(self, name: str) -> tuple[bytes, str]:
        """Return a blob and its ETag. Raises BlobNotFoundError."""
        try:
            return await self._store.read(self._name, name)
        except storage.BlobNotFound as e:
            raise BlobNotFoundError(str(e)) from e

    async def write(self, name: str, data: bytes, *, if_match: str) -> str:
        """Write over the blob with that ETag.

        Raises PreconditionFailedError, and BlobUnavailableError as `BlobWire.send` does.
        """
        try:
            return await self._wire.send(
                lambda: self._store.write(self._name, name, data, if_match=if_match)
            )
        except storage.PreconditionFailed as e:
            raise PreconditionFailedError(str(e)) from e

    async def overwrite(self, name: str, data: bytes) -> None:
        """Write a blob, over whatever is there."""
        await self._store.write(self._name, name, data)

    async def write_new(self, name: str, data: bytes) -> None:
        """Write a blob that never changes. Raises PreconditionFailedError where one is there."""
        try:
            await self._store.write(self._name, name, data, if_absent=True)
        except storage.PreconditionFailed as e:
            existing, _ = await self._store.read(self._name, name)
            if existing != data:
                raise PreconditionFailedError(str(e)) from e

    async def list_blobs(self, prefix: str) -> dict[str, ListedBlob]:
        """Return every blob under the prefix, by the name behind it."""
        listing = await self._store.list_blobs(self._name, prefix)
        blobs = {}
        for blob in listing:
            data, etag = await self._store.read(self._name, blob.name)
            crc = checksum(data)
            blobs[blob.name.removeprefix(prefix)] = ListedBlob(
                size=blob.size, etag=etag, crc64nvme=crc
            )
        return blobs

    async def delete(self, name: str) -> None:
        """Delete a blob, if it is there."""
        await self._store.delete(self._name, name)


def checksum(data: bytes) -> str:
    """Return the CRC-64/NVME of the data, 16 hexadecimal digits."""
    return f"{checksums.crc64nvme(data):016x}"
