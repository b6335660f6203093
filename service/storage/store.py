"""The seam to bytes: containers and blobs, with conditional writes and SAS URLs."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from service.domain.storage.access_tiers import AccessTier, ArchivePriority, StoredBlob

POLICIES = 5  # of one container at a time, says Azure
SMALL = 8 * 2**20  # bytes of a blob that is read whole, where the reader names no other limit
LISTED = 200_000  # blobs of one container that nodes write to, of which more help nobody


def is_account_url(account: str) -> bool:
    """Return whether ``account`` is a URL; False for a connection string, which holds a key."""
    return account.startswith(("https://", "http://"))


class StorageError(Exception):
    """The store failed in a way nobody foresaw. Safe to try again later."""


class BlobNotFound(StorageError):
    """No such blob, or no such container."""


class BlobTooLarge(StorageError):
    """The blob is longer than its reader allows; it was not read."""


class PreconditionFailed(StorageError):
    """Somebody else wrote the blob since it was read. Read again."""


class BlobArchived(StorageError):
    """The blob is in the archive, or on its way back: it cannot be read now."""


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
        """False where there is no account key: then only `sas_url` gives access, by its time."""
        ...

    async def create_container(self, container: str) -> None:
        """Create it; no harm when it exists."""
        ...

    async def delete_container(self, container: str) -> None:
        """Delete it with all blobs; no harm when it is gone."""
        ...

    async def read(self, container: str, name: str, *, most: int = SMALL) -> tuple[bytes, str]:
        """Return the whole (small) blob and its ETag, or raise BlobNotFound.

        Raises BlobTooLarge for one of more than ``most`` bytes, which may be of any size.
        """
        ...

    def stream(
        self, container: str, name: str, *, offset: int = 0, if_match: str = ""
    ) -> AsyncIterator[bytes]:
        """Yield the blob in chunks from ``offset`` on, in constant memory; raise BlobNotFound.

        With ``if_match`` only of that ETag; raises PreconditionFailed otherwise.
        """
        ...

    async def properties(self, container: str, name: str) -> Blob:
        """Name, size, ETag and when it was last written, or raise BlobNotFound."""
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

    async def stage(
        self, container: str, name: str, part: str, chunks: AsyncIterator[bytes]
    ) -> StagedPart:
        """Write a piece of a blob that cannot be read before ``commit``, memory flat.

        ``part`` names it: in one blob all names differ and are equally long. Azure drops what is
        not committed a week after the last piece.
        """
        ...

    async def commit(
        self, container: str, name: str, parts: Sequence[StagedPart], *, if_match: str = ""
    ) -> str:
        """Make the blob of these parts, in this order, drop all others, and return its ETag.

        Parts of the last commit may be named again. Only where no blob is, or with ``if_match``
        only over that ETag; raises PreconditionFailed otherwise, and BlobNotFound when a part is
        not there.
        """
        ...

    async def discard(self, container: str, name: str) -> None:
        """Delete a blob with all that is staged for it; no harm when there is nothing."""
        ...

    async def copy(
        self, container: str, name: str, source: "BlobStore", *, expires_at: datetime
    ) -> bool:
        """Have the account fetch the blob of the same name from another one, by itself.

        True once it is here whole; until then ask again, which is harmless. ``expires_at``: of
        the URL that it is fetched from. Raises BlobNotFound where the container is not.
        """
        ...

    async def delete(self, container: str, name: str) -> None:
        """Delete one blob; no harm when it is gone."""
        ...

    async def list_blobs(
        self, container: str, prefix: str = "", *, most: int | None = None
    ) -> list[Blob]:
        """All blobs under ``prefix``, by name; every page. Empty where there is no container.

        With ``most`` the first so many, for containers that nodes write to.
        """
        ...

    async def list_stored(
        self,
        container: str,
        prefix: str = "",
        *,
        everything: bool = False,
        most: int | None = None,
    ) -> list[StoredBlob]:
        """All blobs under ``prefix`` with their tiers, by name. Empty without a container.

        With ``most`` no more than so many.
        With ``everything`` also what else is billed: versions, snapshots, and what was deleted and
        can be had back.
        """
        ...

    async def set_tier(
        self,
        container: str,
        name: str,
        tier: AccessTier,
        priority: ArchivePriority = ArchivePriority.STANDARD,
    ) -> None:
        """Put one blob in a tier; its ETag stays. No harm when it is there, or on its way there.

        From the archive this begins a rehydration, with that priority. Raises BlobNotFound.
        """
        ...

    async def list_containers(self, prefix: str) -> list[Container]:
        """All containers whose names begin so, by name; every page."""
        ...

    def blob_url(self, container: str, name: str) -> str:
        """URL of a blob or folder, which gives access to nobody by itself."""
        ...

    async def sas_url(
        self, container: str, name: str = "", *, permissions: str, expires_at: datetime
    ) -> str:
        """URL of the blob (or of the container, without ``name``) with a SAS.

        ``permissions`` are Azure's letters, e.g. "r" or "racwdl". Raises StorageError where it
        cannot be signed.
        """
        ...

    async def set_access_policies(
        self, container: str, policies: Mapping[str, datetime], *, permissions: str
    ) -> None:
        """Have exactly these policies, by name, each with its end; POLICIES of them at most.

        Whoever holds a URL of a policy that is not among them has no access any more; Azure needs
        up to 30 seconds. Raises BlobNotFound where the container is not.
        """
        ...

    def policy_url(self, container: str, policy: str) -> str:
        """URL of the container with a SAS that allows what this policy does, while it exists.

        Only with ``has_access_policies``; raises StorageError otherwise.
        """
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...
