"""A storage account in memory, held to the same contract tests as the Azure adapter."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import quote

from service.storage.store import Blob, BlobNotFound, Container, PreconditionFailed

CHUNK_BYTES = 64 * 1024


@dataclass(frozen=True)
class _Content:
    data: bytes
    etag: str


@dataclass
class MemoryStore:
    """See the module."""

    _containers: dict[str, dict[str, _Content]] = field(default_factory=dict)
    _writes: int = 0

    async def create_container(self, container: str) -> None:
        self._containers.setdefault(container, {})

    async def delete_container(self, container: str) -> None:
        self._containers.pop(container, None)

    async def read(self, container: str, name: str) -> tuple[bytes, str]:
        content = self._content(container, name)
        return content.data, content.etag

    async def stream(self, container: str, name: str, *, offset: int = 0) -> AsyncIterator[bytes]:
        data = self._content(container, name).data
        for start in range(offset, len(data), CHUNK_BYTES):
            yield data[start : start + CHUNK_BYTES]

    async def properties(self, container: str, name: str) -> Blob:
        content = self._content(container, name)
        return Blob(name=name, size=len(content.data), etag=content.etag)

    async def write(
        self, container: str, name: str, data: bytes, *, if_match: str = "", if_absent: bool = False
    ) -> str:
        blobs = self._blobs(container)
        found = blobs.get(name)
        changed = if_match and (found is None or found.etag != if_match)
        if changed or (if_absent and found is not None):
            raise PreconditionFailed(f"{container}/{name} was written meanwhile")
        self._writes += 1
        blobs[name] = _Content(bytes(data), f"0x{self._writes:X}")
        return blobs[name].etag

    async def upload(self, container: str, name: str, chunks: AsyncIterator[bytes]) -> Blob:
        data = b"".join([chunk async for chunk in chunks])
        etag = await self.write(container, name, data)
        return Blob(name=name, size=len(data), etag=etag)

    async def delete(self, container: str, name: str) -> None:
        self._containers.get(container, {}).pop(name, None)

    async def list_blobs(self, container: str, prefix: str = "") -> list[Blob]:
        return [
            Blob(name=name, size=len(content.data), etag=content.etag)
            for name, content in sorted(self._containers.get(container, {}).items())
            if name.startswith(prefix)
        ]

    async def list_containers(self, prefix: str) -> list[Container]:
        """It has no clock: all of them are as old as time."""
        beginning = datetime.fromtimestamp(0, UTC)
        names = sorted(name for name in self._containers if name.startswith(prefix))
        return [Container(name=name, modified_at=beginning) for name in names]

    def sas_url(
        self, container: str, name: str = "", *, permissions: str, expires_at: datetime
    ) -> str:
        path = f"{container}/{quote(name)}" if name else container
        return f"memory://{path}?sp={permissions}&se={expires_at:%Y-%m-%dT%H:%M:%SZ}"

    async def close(self) -> None:
        """Nothing to let go of."""

    def _blobs(self, container: str) -> dict[str, _Content]:
        if container not in self._containers:
            raise BlobNotFound(f"There is no container {container}")
        return self._containers[container]

    def _content(self, container: str, name: str) -> _Content:
        blobs = self._blobs(container)
        if name not in blobs:
            raise BlobNotFound(f"There is no {container}/{name}")
        return blobs[name]
