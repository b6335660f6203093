"""The seam to Blob Storage: containers and blobs, with conditional writes and SAS URLs."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from service.domain.storage.access_tiers import AccessTier, ArchivePriority, TieredBlob

POLICIES = 5  # most per container, by Azure's documentation
SMALL_BYTES = 8 * 2**20  # bytes: default limit of a blob that is read whole
MAX_LISTED = 200_000  # most blobs to list of a container that nodes write to


def is_account_url(account: str) -> bool:
    """Return whether ``account`` is a URL; False for a connection string, which holds a key."""
    return account.startswith(("https://", "http://"))


class StorageError(Exception):
    """The store failed in an unexpected way. A later retry is safe."""


class BlobNotFound(StorageError):
    """The blob or its container does not exist."""


class BlobTooLarge(StorageError):
    """The blob is longer than its reader allows; it was not read."""


class PreconditionFailed(StorageError):
    """The blob was written since it was read. Read it again."""


class BlobArchived(StorageError):
    """The blob is archived or being rehydrated: it cannot be read now."""


@dataclass(frozen=True, kw_only=True)
class Blob:
    """One blob as listed or read; ``etag`` without quotes."""

    name: str
    size: int
    etag: str
    modified_at: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True, kw_only=True)
class StagedPart:
    """A piece of a blob whose blocks are staged and not committed."""

    name: str
    blocks: int


@dataclass(frozen=True, kw_only=True)
class Container:
    """One container as listed."""

    name: str
    modified_at: datetime


class BlobStore(Protocol):
    """One storage account."""

    @property
    def has_access_policies(self) -> bool:
        """Return whether `policy_url` works, which needs an account key; `sas_url` always does."""
        ...

    async def create_container(self, container: str) -> None:
        """Create the container; do nothing if it exists."""
        ...

    async def delete_container(self, container: str) -> None:
        """Delete the container with all its blobs; do nothing if it is gone."""
        ...

    async def read(
        self, container: str, name: str, *, most: int = SMALL_BYTES
    ) -> tuple[bytes, str]:
        """Return the whole (small) blob and its ETag, or raise BlobNotFound.

        Raises BlobTooLarge for a blob of more than ``most`` bytes.
        """
        ...

    def stream(
        self, container: str, name: str, *, offset: int = 0, if_match: str = ""
    ) -> AsyncIterator[bytes]:
        """Yield the blob in chunks from ``offset`` on, in constant memory; raise BlobNotFound.

        ``if_match``: raise PreconditionFailed unless the blob has this ETag.
        """
        ...

    async def properties(self, container: str, name: str) -> Blob:
        """Return name, size, ETag and time of the last write, or raise BlobNotFound."""
        ...

    async def write(
        self, container: str, name: str, data: bytes, *, if_match: str = "", if_absent: bool = False
    ) -> str:
        """Write a small blob and return its ETag.

        Raises PreconditionFailed if the blob does not have the ETag ``if_match``, or if it exists
        despite ``if_absent``.
        """
        ...

    async def upload(self, container: str, name: str, chunks: AsyncIterator[bytes]) -> Blob:
        """Write a large blob from a stream, atomically and in constant memory."""
        ...

    async def stage(
        self, container: str, name: str, part: str, chunks: AsyncIterator[bytes]
    ) -> StagedPart:
        """Write a part of a blob, invisible before ``commit``, in constant memory.

        ``part`` is its name: the names in a blob differ and have the same length. Azure drops
        uncommitted parts a week after the last one.
        """
        ...

    async def commit(
        self, container: str, name: str, parts: Sequence[StagedPart], *, if_match: str = ""
    ) -> str:
        """Make the blob from these parts in this order, drop all others, and return its ETag.

        Parts of the last commit may be used again. Raises PreconditionFailed unless the blob has
        the ETag ``if_match`` (without it: does not exist), BlobNotFound if a part is missing.
        """
        ...

    async def discard(self, container: str, name: str) -> None:
        """Delete a blob and its staged parts; do nothing if there are none."""
        ...

    async def copy(
        self, container: str, name: str, source: "BlobStore", *, expires_at: datetime
    ) -> bool:
        """Start or poll a server-side copy of the blob of the same name from another account.

        Return True once the copy is complete; until then call again, which is idempotent.
        ``expires_at``: expiry of the source's URL. Raises BlobNotFound without the container.
        """
        ...

    async def delete(self, container: str, name: str) -> None:
        """Delete one blob; do nothing if it is gone."""
        ...

    async def list_blobs(
        self, container: str, prefix: str = "", *, most: int | None = None
    ) -> list[Blob]:
        """Return all blobs under ``prefix`` by name, none without the container.

        ``most``: limit of the list, for containers that nodes write to.
        """
        ...

    async def list_stored(
        self,
        container: str,
        prefix: str = "",
        *,
        everything: bool = False,
        most: int | None = None,
    ) -> list[TieredBlob]:
        """Return all blobs under ``prefix`` with their tiers, by name; none without the container.

        ``most``: limit of the list. ``everything``: include what else is billed, which is versions,
        snapshots and soft-deleted blobs.
        """
        ...

    async def set_tier(
        self,
        container: str,
        name: str,
        tier: AccessTier,
        priority: ArchivePriority = ArchivePriority.STANDARD,
    ) -> None:
        """Set the tier of one blob, which keeps its ETag; idempotent.

        From the archive this starts a rehydration with ``priority``. Raises BlobNotFound.
        """
        ...

    async def list_containers(self, prefix: str) -> list[Container]:
        """Return all containers whose names begin with ``prefix``, by name."""
        ...

    def blob_url(self, container: str, name: str) -> str:
        """Return the URL of a blob or folder, which grants no access by itself."""
        ...

    async def sas_url(
        self, container: str, name: str = "", *, permissions: str, expires_at: datetime
    ) -> str:
        """Return a URL with a SAS of the blob, or without ``name`` of the container.

        ``permissions`` are Azure's letters, e.g. "r" or "racwdl". Raises StorageError if it cannot
        be signed.
        """
        ...

    async def set_access_policies(
        self, container: str, policies: Mapping[str, datetime], *, permissions: str
    ) -> None:
        """Replace the container's access policies: name -> expiry, POLICIES of them at most.

        URLs of a removed policy lose their access; Azure needs up to 30 seconds. Raises
        BlobNotFound without the container.
        """
        ...

    def policy_url(self, container: str, policy: str) -> str:
        """Return a URL of the container with a SAS that depends on this access policy.

        Raises StorageError without ``has_access_policies``.
        """
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...
