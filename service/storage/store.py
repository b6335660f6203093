"""The seam to bytes: containers and blobs, with conditional writes and SAS URLs."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


class StorageError(Exception):
    """The store failed in a way nobody foresaw. Safe to try again later."""


class BlobNotFound(StorageError):
    """No such blob, or no such container."""


class PreconditionFailed(StorageError):
    """Somebody else wrote the blob since it was read. Read again."""


@dataclass(frozen=True, kw_only=True)
class Blob:
    """One blob as listed or read; ``etag`` without quotes."""

    name: str
    size: int
    etag: str


@dataclass(frozen=True, kw_only=True)
class Container:
    """One container as listed."""

    name: str
    modified_at: datetime


class BlobStore(Protocol):
    """One storage account."""

    async def create_container(self, container: str) -> None:
        """Create it; no harm when it exists."""
        ...

    async def delete_container(self, container: str) -> None:
        """Delete it with all blobs; no harm when it is gone."""
        ...

    async def read(self, container: str, name: str) -> tuple[bytes, str]:
        """The whole (small) blob and its ETag, or raise BlobNotFound."""
        ...

    def stream(self, container: str, name: str, *, offset: int = 0) -> AsyncIterator[bytes]:
        """The blob in chunks from ``offset`` on, memory flat; raises BlobNotFound."""
        ...

    async def properties(self, container: str, name: str) -> Blob:
        """Name, size and ETag, or raise BlobNotFound."""
        ...

    async def write(
        self, container: str, name: str, data: bytes, *, if_match: str = "", if_absent: bool = False
    ) -> str:
        """Write a small blob and return its ETag.

        With ``if_match`` only over that ETag, with ``if_absent`` only where none is;
        raises PreconditionFailed otherwise.
        """
        ...

    async def upload(self, container: str, name: str, chunks: AsyncIterator[bytes]) -> Blob:
        """Write a large blob from a stream, memory flat. It appears whole or not at all."""
        ...

    async def delete(self, container: str, name: str) -> None:
        """Delete one blob; no harm when it is gone."""
        ...

    async def list_blobs(self, container: str, prefix: str = "") -> list[Blob]:
        """All blobs under ``prefix``, by name; every page. Empty where there is no container."""
        ...

    async def list_containers(self, prefix: str) -> list[Container]:
        """All containers whose names begin so, by name; every page."""
        ...

    def sas_url(
        self, container: str, name: str = "", *, permissions: str, expires_at: datetime
    ) -> str:
        """URL of the blob (or of the container, without ``name``) with a SAS.

        ``permissions`` are Azure's letters, e.g. "r" or "racwdl".
        """
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...
