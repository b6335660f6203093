"""Blobs behind SAS URLs: small ones with conditions, large ones in parallel blocks.

Azure's client runs in threads (faster than its asyncio version; hashing and TLS release the
interpreter lock). Its own retries are off: a conditional write must not be repeated blindly.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import requests
from azure.core import MatchConditions
from azure.core.exceptions import AzureError, HttpResponseError
from azure.core.pipeline.transport import RequestsTransport
from azure.storage.blob import BlobClient, ContainerClient
from requests.adapters import HTTPAdapter
from tenacity import (
    AsyncRetrying,
    retry_if_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)

from trainer.supervisor.blob.blocks import BlobRange, BlockClient, receive_range
from trainer.supervisor.blob.errors import (
    AccessRefusedError,
    BlobError,
    BlobNotFoundError,
    BlobUnavailableError,
    PreconditionFailedError,
    error_for_status,
    redact_sas,
)
from trainer.supervisor.blob.fetch_processes import FetchProcessError, FetchProcesses

__all__ = [
    "AccessRefusedError",
    "BlobAccess",
    "BlobError",
    "BlobNotFoundError",
    "BlobUnavailableError",
    "JobContainer",
    "ListedBlob",
    "PreconditionFailedError",
    "redact_sas",
]
log = logging.getLogger(__name__)
THREADS = 16
ATTEMPTS = 5

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class ListedBlob:
    """A blob in a listing."""

    size: int
    etag: str
    crc64nvme: str  # as its uploader noted it; "" unless uploaded by upload.py


class BlobAccess:
    """Threads and connections shared by all blob clients of this process."""

    def __init__(self, fetchers: FetchProcesses | None = None) -> None:
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="blob")
        self.blocks = BlockClient(THREADS)
        self._fetchers = fetchers or FetchProcesses()
        self._session = requests.Session()
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, HTTPAdapter(pool_maxsize=THREADS))
        self._transport = RequestsTransport(
            session=self._session, session_owner=False, connection_timeout=5, read_timeout=30
        )

    def container(self, url: str) -> ContainerClient:
        """Return a client of the container at a SAS URL."""
        return ContainerClient.from_container_url(url, transport=self._transport, retry_total=0)

    def blob(self, url: str) -> BlobClient:
        """Return a client of the blob at a SAS URL."""
        return BlobClient.from_blob_url(url, transport=self._transport, retry_total=0)

    async def call_once(self, call: Callable[[], T]) -> T:
        """Run a call of Azure's client in a thread; translate its errors to BlobError."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, _call_translated, call)

    async def call_with_retries(self, call: Callable[[], T]) -> T:
        """Run an idempotent call; retry a few times when Blob is unavailable."""
        return await _retry_unavailable(partial(self.call_once, call))

    async def receive(self, blob_range: BlobRange, *, in_subprocess: bool) -> tuple[int, int]:
        """Read a range into its file; return (CRC, size of the blob).

        ``in_subprocess``: by a process of its own.
        """
        if in_subprocess:
            try:
                return await _retry_unavailable(partial(self._fetchers.receive, blob_range))
            except FetchProcessError as e:
                log.warning("fetchers.none reason=%s", e)
        return await self.call_with_retries(partial(receive_range, self.blocks, blob_range))

    def close(self) -> None:
        """Close the connections; threads end with their present call."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._fetchers.close()
        self._session.close()
        self.blocks.close()


class JobContainer:
    """The job's container; its SAS can be renewed while it is in use."""

    def __init__(self, access: BlobAccess, url: str) -> None:
        self.access = access
        self.renew(url)

    def renew(self, url: str) -> None:
        """Use this SAS from now on."""
        self.url = url
        self._client = self.access.container(url)

    def blob(self, name: str) -> BlobClient:
        """Return Azure's client of one blob."""
        return self._client.get_blob_client(name)

    async def read(self, name: str) -> tuple[bytes, str]:
        """Return a small blob and its ETag; raise BlobNotFoundError."""
        download = partial(_download, self.blob(name))
        return await self.access.call_with_retries(download)

    async def write(self, name: str, data: bytes, *, if_match: str) -> str:
        """Overwrite the blob with that ETag; return the new ETag.

        Tries once. After PreconditionFailedError or BlobUnavailableError read the blob again: the
        write may or may not have happened.
        """
        upload = partial(
            self.blob(name).upload_blob,
            data,
            overwrite=True,
            etag=if_match,
            match_condition=MatchConditions.IfNotModified,
        )
        return _etag((await self.access.call_once(upload))["etag"])

    async def overwrite(self, name: str, data: bytes) -> None:
        """Write a small blob, over an existing one."""
        await self.access.call_with_retries(
            partial(self.blob(name).upload_blob, data, overwrite=True)
        )

    async def write_new(self, name: str, data: bytes) -> None:
        """Write a small immutable blob; raise PreconditionFailedError if another one exists."""
        try:
            blob = self.blob(name)
            await self.access.call_with_retries(partial(blob.upload_blob, data, overwrite=False))
        except PreconditionFailedError:
            existing, _ = await self.read(name)
            if existing != data:
                raise

    async def list_blobs(self, prefix: str) -> dict[str, ListedBlob]:
        """Return the blobs under ``prefix``, by the rest of their names."""
        return await self.access.call_with_retries(partial(_listing, self._client, prefix))

    async def delete(self, name: str) -> None:
        """Delete one blob; a missing one is fine."""
        try:
            await self.access.call_with_retries(self.blob(name).delete_blob)
        except BlobNotFoundError:
            return


async def _retry_unavailable(call: Callable[[], Awaitable[T]]) -> T:
    async for attempt in AsyncRetrying(
        retry=retry_if_exception_type(BlobUnavailableError),
        stop=stop_after_attempt(ATTEMPTS),
        wait=wait_random_exponential(multiplier=0.2, max=3.0),
        reraise=True,
    ):
        with attempt:
            return await call()
    raise AssertionError("tenacity either returns or raises")


def _download(blob: BlobClient) -> tuple[bytes, str]:
    stream = blob.download_blob()
    return stream.readall(), _etag(stream.properties.etag)


def _listing(client: ContainerClient, prefix: str) -> dict[str, ListedBlob]:
    blobs = client.list_blobs(name_starts_with=prefix, include=["metadata"])
    return {
        b.name.removeprefix(prefix): ListedBlob(
            size=b.size, etag=_etag(b.etag), crc64nvme=(b.metadata or {}).get("crc64nvme", "")
        )
        for b in blobs
    }


def _etag(quoted: str) -> str:
    """Remove the quotes that ETags of reads have and those of listings lack."""
    return quoted.strip('"')


def _call_translated(call: Callable[[], T]) -> T:
    try:
        return call()
    except HttpResponseError as e:
        raise _error_of(e) from e
    except (AzureError, requests.RequestException) as e:
        raise BlobUnavailableError(f"{type(e).__name__}: {redact_sas(str(e))}") from None


def _error_of(error: HttpResponseError) -> BlobError:
    url = getattr(getattr(error.response, "request", None), "url", "")
    code = getattr(error, "error_code", "") or error.reason or ""
    return error_for_status(url, error.status_code, str(code))
