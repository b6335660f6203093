"""Blob Storage: an account of Azure's by its URL, or Azurite by its connection string."""

import asyncio
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from math import inf
from typing import Any
from uuid import uuid4

from azure.core import MatchConditions
from azure.storage.blob import (
    AccessPolicy,
    BlobBlock,
    BlobProperties,
    BlobSasPermissions,
    BlobType,
    ContainerSasPermissions,
    RehydratePriority,
    generate_blob_sas,
    generate_container_sas,
)
from azure.storage.blob.aio import BlobClient, BlobServiceClient, LinearRetry

from service.domain.storage.access_tiers import AccessTier, ArchivePriority, TieredBlob
from service.storage.azure_errors import MISSING, translate_errors
from service.storage.azure_tiers import parse_blob
from service.storage.signing import DelegationKeys, Signature
from service.storage.store import (
    SMALL_BYTES,
    Blob,
    BlobStore,
    BlobTooLarge,
    Container,
    StagedPart,
    StorageError,
    is_account_url,
)

BLOCK_BYTES = 8 * 1024 * 1024
BLOCKS_IN_FLIGHT = 2
PART_BLOCK_BYTES = 2 * 1024 * 1024  # small: many concurrent parts hold four blocks each

_COMPLETE_COPY_STATES = frozenset({None, "success"})  # None: written, not copied
_PENDING_COPY = "pending"
_OTHER_BILLED_BLOBS = ["deleted", "versions", "snapshots"]
_DELETED_CONTAINER_CODES = frozenset({"ContainerNotFound", "ContainerBeingDeleted"})


@dataclass(frozen=True, kw_only=True)
class ServiceIdentity:
    """Identity of the service for an account without a key."""

    credential: Any  # of azure-identity; the store closes it
    now: Callable[[], datetime]
    ca_path: str = ""  # "": the system's authorities are trusted


class AzureBlobStore:
    """One storage account, by its URL and an identity, or by a connection string with a key."""

    def __init__(
        self, account: str, *, sign_in: ServiceIdentity | None = None, retries: int = 3
    ) -> None:
        options: dict[str, Any] = {
            "max_single_get_size": BLOCK_BYTES,
            "retry_policy": LinearRetry(backoff=1, retry_total=retries, random_jitter_range=1),
        }
        self._sign_in, self._keys = sign_in, None
        if not is_account_url(account):
            self._service = BlobServiceClient.from_connection_string(account, **options)
            return
        if sign_in is None:
            raise ValueError("the URL of an account needs a sign-in")
        self._keys = DelegationKeys(sign_in.now)
        self._service = BlobServiceClient(
            account, sign_in.credential, connection_verify=sign_in.ca_path or True, **options
        )
        if not self._service.account_name:
            raise ValueError("write https://ACCOUNT.blob.core.windows.net: SAS name the account")

    @property
    def has_access_policies(self) -> bool:
        return self._keys is None

    async def create_container(self, container: str) -> None:
        async with translate_errors(container, allow=frozenset({"ContainerAlreadyExists"})):
            await self._service.create_container(container)

    async def delete_container(self, container: str) -> None:
        async with translate_errors(container, allow=_DELETED_CONTAINER_CODES):
            await self._service.delete_container(container)

    async def read(
        self, container: str, name: str, *, most: int = SMALL_BYTES
    ) -> tuple[bytes, str]:
        """Read a small blob; stop after the first block if it is too large."""
        async with translate_errors(f"{container}/{name}"):
            download = await self._blob(container, name).download_blob()
            if download.size > most:
                raise BlobTooLarge(f"{container}/{name} is longer than {most} bytes")
            return await download.readall(), _strip_quotes(download.properties.etag)

    async def stream(
        self, container: str, name: str, *, offset: int = 0, if_match: str = ""
    ) -> AsyncIterator[bytes]:
        """Yield the blob in blocks, nothing if it ends at or before ``offset``.

        An append blob may grow meanwhile; any other blob must keep its ETag.
        """
        blob, data = self._blob(container, name), bytes(BLOCK_BYTES)
        unchanged = _if_match(if_match) if if_match else {}
        async with translate_errors(f"{container}/{name}", allow=frozenset({"InvalidRange"})):
            while len(data) == BLOCK_BYTES:
                download = await blob.download_blob(offset=offset, length=BLOCK_BYTES, **unchanged)
                if download.properties.blob_type != BlobType.APPENDBLOB:
                    unchanged = _if_match(_strip_quotes(download.properties.etag))
                data = await download.readall()
                yield data
                offset += len(data)

    async def properties(self, container: str, name: str) -> Blob:
        async with translate_errors(f"{container}/{name}"):
            blob_properties = await self._blob(container, name).get_blob_properties()
            return _to_blob(blob_properties)

    async def write(
        self, container: str, name: str, data: bytes, *, if_match: str = "", if_absent: bool = False
    ) -> str:
        condition = _if_match(if_match) if if_match else {}
        async with translate_errors(f"{container}/{name}"):
            blob = self._blob(container, name)
            answer: dict[str, Any] = await blob.upload_blob(
                data, overwrite=not if_absent, **condition
            )
            return _strip_quotes(answer["etag"])

    async def upload(self, container: str, name: str, chunks: AsyncIterator[bytes]) -> Blob:
        """Stage blocks, then name them in one Put Block List: that is when the blob appears."""
        async with translate_errors(f"{container}/{name}"):
            blob = self._blob(container, name)
            block_ids, size = await _stage(blob, chunks, uuid4().hex, BLOCK_BYTES)
            answer: dict[str, Any] = await blob.commit_block_list(
                [BlobBlock(block_id=i) for i in block_ids]
            )
            return Blob(name=name, size=size, etag=_strip_quotes(answer["etag"]))

    async def stage(
        self, container: str, name: str, part: str, chunks: AsyncIterator[bytes]
    ) -> StagedPart:
        async with translate_errors(f"{container}/{name}"):
            blob = self._blob(container, name)
            block_ids, _ = await _stage(blob, chunks, part, PART_BLOCK_BYTES)
            return StagedPart(name=part, blocks=len(block_ids))

    async def commit(
        self, container: str, name: str, parts: Sequence[StagedPart], *, if_match: str = ""
    ) -> str:
        blob = self._blob(container, name)
        ids = [_block_id(part.name, number) for part in parts for number in range(part.blocks)]
        absent = {"match_condition": MatchConditions.IfMissing}
        condition = _if_match(if_match) if if_match else absent
        async with translate_errors(f"{container}/{name}"):
            answer: dict[str, Any] = await blob.commit_block_list(
                [BlobBlock(block_id=i) for i in ids], **condition
            )
            return _strip_quotes(answer["etag"])

    async def discard(self, container: str, name: str) -> None:
        """Commit no block, which drops all that are staged, and delete the empty blob."""
        async with translate_errors(f"{container}/{name}", allow=MISSING):
            await self._blob(container, name).commit_block_list([])
        await self.delete(container, name)

    async def copy(
        self, container: str, name: str, source: BlobStore, *, expires_at: datetime
    ) -> bool:
        """Copy the blob with Azure's asynchronous Copy Blob, which takes blobs of any size."""
        blob = self._blob(container, name)
        async with translate_errors(f"{container}/{name}", allow=MISSING):
            properties = await blob.get_blob_properties()
            if properties.copy.status in _COMPLETE_COPY_STATES:
                return True
            if properties.copy.status == _PENDING_COPY:
                return False
        url = await source.sas_url(container, name, permissions="r", expires_at=expires_at)
        status: Any = _PENDING_COPY
        async with translate_errors(
            f"{container}/{name}", allow=frozenset({"PendingCopyOperation"})
        ):
            status = (await blob.start_copy_from_url(url))["copy_status"]
        return status in _COMPLETE_COPY_STATES

    async def delete(self, container: str, name: str) -> None:
        async with translate_errors(f"{container}/{name}", allow=MISSING):
            await self._blob(container, name).delete_blob(delete_snapshots="include")

    async def list_blobs(
        self, container: str, prefix: str = "", *, most: int | None = None
    ) -> list[Blob]:
        blobs: list[Blob] = []
        async with translate_errors(container, allow=_DELETED_CONTAINER_CODES):
            pages = self._service.get_container_client(container).list_blobs(
                name_starts_with=prefix or None
            )
            blobs = [_to_blob(item) async for item in _first(pages, most)]
        return sorted(blobs, key=lambda blob: blob.name)

    async def list_stored(
        self,
        container: str,
        prefix: str = "",
        *,
        everything: bool = False,
        most: int | None = None,
    ) -> list[TieredBlob]:
        blobs: list[TieredBlob] = []
        async with translate_errors(container, allow=_DELETED_CONTAINER_CODES):
            pages = self._service.get_container_client(container).list_blobs(
                name_starts_with=prefix or None, include=_OTHER_BILLED_BLOBS if everything else None
            )
            blobs = [parse_blob(item) async for item in _first(pages, most)]
        return sorted(blobs, key=lambda blob: blob.name)

    async def set_tier(
        self,
        container: str,
        name: str,
        tier: AccessTier,
        priority: ArchivePriority = ArchivePriority.STANDARD,
    ) -> None:
        """Set the tier; ignore Azure's refusal during a rehydration, which goes on as it began."""
        blob = self._blob(container, name)
        async with translate_errors(
            f"{container}/{name}", allow=frozenset({"BlobBeingRehydrated"})
        ):
            await blob.set_standard_blob_tier(
                tier.capitalize(), rehydrate_priority=RehydratePriority(priority.capitalize())
            )

    async def list_containers(self, prefix: str) -> list[Container]:
        containers: list[Container] = []
        async with translate_errors("the account"):
            pages = self._service.list_containers(name_starts_with=prefix)
            containers = [Container(name=c.name, modified_at=c.last_modified) async for c in pages]
        return sorted(containers, key=lambda container: container.name)

    def blob_url(self, container: str, name: str) -> str:
        return self._blob(container, name).url

    async def sas_url(
        self, container: str, name: str = "", *, permissions: str, expires_at: datetime
    ) -> str:
        """Return a SAS URL without a start time, so that slow clocks accept it at once."""
        signature = await self._signature(expires_at)
        common = {"expiry": expires_at, **self._signing(container, signature)}
        if name:
            letters = BlobSasPermissions.from_string(permissions)
            sas = generate_blob_sas(blob_name=name, permission=letters, **common)
            return f"{self._blob(container, name).url}?{sas}"
        sas = generate_container_sas(
            permission=ContainerSasPermissions.from_string(permissions), **common
        )
        return f"{self._service.get_container_client(container).url}?{sas}"

    async def set_access_policies(
        self, container: str, policies: Mapping[str, datetime], *, permissions: str
    ) -> None:
        """Set stored access policies with their expiry, which Azurite reads from here only."""
        letters = ContainerSasPermissions.from_string(permissions)
        access_policies = {
            name: AccessPolicy(permission=letters, expiry=end) for name, end in policies.items()
        }
        async with translate_errors(container):
            of_container = self._service.get_container_client(container)
            await of_container.set_container_access_policy(access_policies)

    def policy_url(self, container: str, policy: str) -> str:
        signature = Signature(account_key=self._account_key())
        sas = generate_container_sas(policy_id=policy, **self._signing(container, signature))
        return f"{self._service.get_container_client(container).url}?{sas}"

    async def close(self) -> None:
        await self._service.close()
        if self._sign_in is not None:
            await self._sign_in.credential.close()

    def _blob(self, container: str, name: str) -> BlobClient:
        return self._service.get_blob_client(container, name)

    async def _signature(self, expires_at: datetime) -> Signature:
        if self._keys is None:
            return Signature(account_key=self._account_key())
        async with translate_errors("a user delegation key"):
            return await self._keys.sign(self._service, expires_at)

    def _signing(self, container: str, signature: Signature) -> dict[str, Any]:
        return {
            "account_name": self._service.account_name,
            "container_name": container,
            "protocol": "https" if self._service.url.startswith("https:") else "https,http",
            **signature.arguments(),
        }

    def _account_key(self) -> str:
        key = getattr(self._service.credential, "account_key", None)
        if not key:
            raise StorageError(
                "The storage connection string has no AccountKey, which SAS URLs are signed with."
                " Use the account's full connection string, or its URL to sign in to Microsoft"
                " Entra ID."
            )
        return str(key)


async def _stage(
    blob: BlobClient, chunks: AsyncIterator[bytes], prefix: str, block_bytes: int
) -> tuple[list[str], int]:
    """Stage every block of ``chunks``, a few at a time; return the block ids and all bytes.

    The ids begin with ``prefix``, which must be new: then blocks of another upload to the same name
    cannot get into this blob.
    """
    size = 0
    block_ids: list[str] = []
    in_flight: deque[asyncio.Future[Any]] = deque()
    try:
        async for block in _blocks(chunks, block_bytes):
            if len(in_flight) == BLOCKS_IN_FLIGHT:
                await in_flight.popleft()
            block_ids.append(_block_id(prefix, len(block_ids)))
            in_flight.append(asyncio.ensure_future(blob.stage_block(block_ids[-1], BytesIO(block))))
            size += len(block)
        while in_flight:
            await in_flight.popleft()
    finally:  # an interrupted request would leave a broken connection behind
        await asyncio.gather(*in_flight, return_exceptions=True)
    return block_ids, size


def _block_id(prefix: str, number: int) -> str:
    return f"{prefix}-{number:05d}"


async def _blocks(chunks: AsyncIterator[bytes], size: int) -> AsyncIterator[bytes]:
    """Yield the bytes in pieces of this size; the last one may be shorter."""
    buffer = bytearray()
    async for chunk in chunks:
        remaining = memoryview(chunk)
        while remaining:
            room = size - len(buffer)
            buffer += remaining[:room]
            remaining = remaining[room:]
            if len(buffer) == size:
                yield bytes(buffer)
                buffer.clear()
    if buffer:
        yield bytes(buffer)


def _to_blob(properties: BlobProperties) -> Blob:
    return Blob(
        name=properties.name,
        size=properties.size,
        etag=_strip_quotes(properties.etag),
        modified_at=properties.last_modified,
    )


async def _first(
    pages: AsyncIterable[BlobProperties], most: int | None
) -> AsyncIterator[BlobProperties]:
    """Yield the first ``most`` blobs; request no page of 5,000 beyond the last one needed."""
    remaining = inf if most is None else most
    async for item in pages:
        if remaining <= 0:
            return
        remaining -= 1
        yield item


def _if_match(etag: str) -> dict[str, Any]:
    return {"etag": f'"{etag}"', "match_condition": MatchConditions.IfNotModified}


def _strip_quotes(etag: str | None) -> str:
    return (etag or "").strip('"')
