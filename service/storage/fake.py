"""A storage account in memory, held to the same contract tests as the Azure adapter."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from urllib.parse import quote

from service.domain.storage.access_tiers import AccessTier, ArchivePriority, TieredBlob
from service.storage.store import (
    POLICIES,
    SMALL_BYTES,
    Blob,
    BlobArchived,
    BlobNotFound,
    BlobStore,
    BlobTooLarge,
    Container,
    PreconditionFailed,
    StagedPart,
)

CHUNK_BYTES = 64 * 1024
BEGINNING = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True)
class _Content:
    data: bytes
    etag: str
    tier: AccessTier = AccessTier.HOT
    rehydrating: AccessTier | None = None
    priority: ArchivePriority | None = None
    modified_at: datetime = BEGINNING


@dataclass
class MemoryStore:
    """A BlobStore in memory; without ``now`` every blob is dated 1970."""

    _containers: dict[str, dict[str, _Content]] = field(default_factory=dict)
    _writes: int = 0
    url: str = "memory:/"
    now: Callable[[], datetime] = lambda: BEGINNING
    slow_archive: bool = False  # rehydrations end with ``rehydrate``, not at once
    policies: dict[str, dict[str, datetime]] = field(default_factory=dict)  # by container
    has_access_policies: bool = True
    _created_at: dict[str, datetime] = field(default_factory=dict)
    # (container, blob) -> part -> bytes: staged parts and those of the last commit.
    _staged: dict[tuple[str, str], dict[str, bytes]] = field(default_factory=dict)

    async def create_container(self, container: str) -> None:
        self._containers.setdefault(container, {})
        self._created_at.setdefault(container, self.now())

    async def delete_container(self, container: str) -> None:
        self._containers.pop(container, None)
        self._created_at.pop(container, None)

    async def read(
        self, container: str, name: str, *, most: int = SMALL_BYTES
    ) -> tuple[bytes, str]:
        content = self._online(container, name)
        if len(content.data) > most:
            raise BlobTooLarge(f"{container}/{name} is longer than {most} bytes")
        return content.data, content.etag

    async def stream(
        self, container: str, name: str, *, offset: int = 0, if_match: str = ""
    ) -> AsyncIterator[bytes]:
        content = self._online(container, name)
        if if_match and content.etag != if_match:
            raise PreconditionFailed(f"{container}/{name} was written meanwhile")
        data = content.data
        for start in range(offset, len(data), CHUNK_BYTES):
            yield data[start : start + CHUNK_BYTES]

    async def properties(self, container: str, name: str) -> Blob:
        content = self._content(container, name)
        return _blob(name, content)

    async def write(
        self, container: str, name: str, data: bytes, *, if_match: str = "", if_absent: bool = False
    ) -> str:
        blobs = self._blobs(container)
        current = blobs.get(name)
        changed = if_match and (current is None or current.etag != if_match)
        if changed or (if_absent and current is not None):
            raise PreconditionFailed(f"{container}/{name} was written meanwhile")
        self._writes += 1
        blobs[name] = _Content(bytes(data), f"0x{self._writes:X}", modified_at=self.now())
        return blobs[name].etag

    async def upload(self, container: str, name: str, chunks: AsyncIterator[bytes]) -> Blob:
        data = b"".join([chunk async for chunk in chunks])
        etag = await self.write(container, name, data)
        return Blob(name=name, size=len(data), etag=etag)

    async def stage(
        self, container: str, name: str, part: str, chunks: AsyncIterator[bytes]
    ) -> StagedPart:
        self._blobs(container)
        data = b"".join([chunk async for chunk in chunks])
        self._staged.setdefault((container, name), {})[part] = data
        return StagedPart(name=part, blocks=1)

    async def commit(
        self, container: str, name: str, parts: Sequence[StagedPart], *, if_match: str = ""
    ) -> str:
        self._blobs(container)
        staged = self._staged.get((container, name), {})
        if missing := [part.name for part in parts if part.name not in staged]:
            raise BlobNotFound(f"{container}/{name} has no part {missing[0]}")
        data_by_part = {part.name: staged[part.name] for part in parts}
        data = b"".join(data_by_part[part.name] for part in parts)
        etag = await self.write(container, name, data, if_match=if_match, if_absent=not if_match)
        self._staged[container, name] = data_by_part
        return etag

    async def discard(self, container: str, name: str) -> None:
        self._staged.pop((container, name), None)
        await self.delete(container, name)

    async def copy(
        self,
        container: str,
        name: str,
        source: BlobStore,
        *,
        expires_at: datetime,  # noqa: ARG002 - in memory nothing lasts
    ) -> bool:
        if name not in self._blobs(container):
            data = b"".join([chunk async for chunk in source.stream(container, name)])
            await self.write(container, name, data)
        return True

    async def delete(self, container: str, name: str) -> None:
        self._containers.get(container, {}).pop(name, None)

    async def list_blobs(
        self, container: str, prefix: str = "", *, most: int | None = None
    ) -> list[Blob]:
        return [_blob(name, content) for name, content in self._under(container, prefix)][:most]

    async def list_stored(
        self,
        container: str,
        prefix: str = "",
        *,
        everything: bool = False,  # noqa: ARG002 - here nothing is kept that was deleted
        most: int | None = None,
    ) -> list[TieredBlob]:
        return [
            TieredBlob(
                name=name,
                size=len(content.data),
                tier=content.tier,
                rehydrating=content.rehydrating,
                priority=content.priority,
            )
            for name, content in self._under(container, prefix)
        ][:most]

    async def set_tier(
        self,
        container: str,
        name: str,
        tier: AccessTier,
        priority: ArchivePriority = ArchivePriority.STANDARD,
    ) -> None:
        content = self._content(container, name)
        if (
            content.tier is AccessTier.ARCHIVE
            and tier is not AccessTier.ARCHIVE
            and self.slow_archive
        ):
            changed = replace(content, rehydrating=content.rehydrating or tier, priority=priority)
        else:
            changed = replace(content, tier=tier)
        self._containers[container][name] = changed

    def rehydrate(self) -> None:
        """Complete all rehydrations."""
        for blobs in self._containers.values():
            for name, content in blobs.items():
                if content.rehydrating is not None:
                    blobs[name] = replace(
                        content, tier=content.rehydrating, rehydrating=None, priority=None
                    )

    async def list_containers(self, prefix: str) -> list[Container]:
        names = sorted(name for name in self._containers if name.startswith(prefix))
        return [Container(name=n, modified_at=self._created_at.get(n, BEGINNING)) for n in names]

    def blob_url(self, container: str, name: str) -> str:
        return f"{self.url}/{container}/{quote(name)}"

    async def sas_url(
        self, container: str, name: str = "", *, permissions: str, expires_at: datetime
    ) -> str:
        path = f"{container}/{quote(name)}" if name else container
        return f"{self.url}/{path}?sp={permissions}&se={expires_at:%Y-%m-%dT%H:%M:%SZ}"

    async def set_access_policies(
        self,
        container: str,
        policies: Mapping[str, datetime],
        *,
        permissions: str,  # noqa: ARG002 - URLs are not served
    ) -> None:
        self._blobs(container)
        if len(policies) > POLICIES:
            raise ValueError(f"{container}: more than {POLICIES} access policies")
        self.policies[container] = dict(policies)

    def policy_url(self, container: str, policy: str) -> str:
        return f"{self.url}/{container}?si={policy}"

    async def close(self) -> None:
        """Do nothing: there are no connections."""

    def _under(self, container: str, prefix: str) -> list[tuple[str, _Content]]:
        blobs = sorted(self._containers.get(container, {}).items())
        return [(name, content) for name, content in blobs if name.startswith(prefix)]

    def _blobs(self, container: str) -> dict[str, _Content]:
        if container not in self._containers:
            raise BlobNotFound(f"There is no container {container}")
        return self._containers[container]

    def _online(self, container: str, name: str) -> _Content:
        content = self._content(container, name)
        if content.tier is AccessTier.ARCHIVE:
            raise BlobArchived(f"{container}/{name} is archived; bring it back first")
        return content

    def _content(self, container: str, name: str) -> _Content:
        blobs = self._blobs(container)
        if name not in blobs:
            raise BlobNotFound(f"There is no {container}/{name}")
        return blobs[name]


def _blob(name: str, content: _Content) -> Blob:
    return Blob(
        name=name, size=len(content.data), etag=content.etag, modified_at=content.modified_at
    )
