"""Refuse content that differs from what was committed.

HEAD, manifests and files lie where nodes may write. A manifest's hash in HEAD is therefore trusted
once: PostgreSQL keeps it (`jobs.result`, `checkpoints.manifest_sha256`), and no later HEAD changes
it. The manifest has ETag, size and SHA-256 of every file.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Any

from service.domain.errors import ContentChanged, ServiceError
from service.operations.storage import manifests
from service.storage.store import SMALL_BYTES, BlobStore
from trainer.contract import MANIFEST, FileEntry, InputFile, Manifest

_REMEDY = "Restore the blob (versions, soft delete), or train again."


async def read_manifest(store: BlobStore, job_id: str, result: dict[str, Any]) -> Manifest:
    """Return the manifest of a job's final model.

    Raises ContentChanged, and what `manifests.load` and `parse` raise.
    """
    path = str(result["path"])
    data = await manifests.load(store, job_id, path)
    if fault := describe_difference(data, result["manifest_sha256"]):
        raise _content_changed(job_id, f"{path}/{MANIFEST}", fault)
    return await manifests.parse(data)


async def open_file(
    store: BlobStore, job_id: str, path: str, file: FileEntry, offset: int
) -> AsyncIterator[bytes]:
    """Stream a model's file from ``offset`` on; a whole file breaks off where its hash differs.

    An unchanged ETag proves that the blob was not written since the commit. A restored or copied
    blob has another ETag: it is read in full first, and its hash must match. Raises ContentChanged
    and BlobNotFound.
    """
    name = f"{path}/{file.name}"
    properties = await store.properties(job_id, name)
    if properties.size != file.size:
        raise _content_changed(
            job_id, name, f"it has {properties.size} bytes instead of {file.size}"
        )
    if properties.etag != file.etag:
        fault = _content_changed(job_id, name, "it was written again, with other bytes")
        async for _ in verify_chunks(
            store.stream(job_id, name, if_match=properties.etag), file.sha256, fault
        ):
            pass
    chunks = store.stream(job_id, name, offset=offset, if_match=properties.etag)
    if offset:
        return chunks
    return verify_chunks(
        chunks, file.sha256, _content_changed(job_id, name, "its sha256 is another one")
    )


async def verify_chunks(
    chunks: AsyncIterator[bytes], sha256: str, fault: ServiceError
) -> AsyncIterator[bytes]:
    """Pass chunks on, the last one only if the hash of all matches; else raise ``fault``."""
    digest, pending = hashlib.sha256(), b""
    async for chunk in chunks:
        if pending:
            yield pending
        await asyncio.to_thread(digest.update, chunk)
        pending = chunk
    if digest.hexdigest() != sha256:
        raise fault
    yield pending


async def read_input(store: BlobStore, file: InputFile, most: int = SMALL_BYTES) -> bytes:
    """Return a model's file of at most ``most`` bytes, or raise ValueError where its hash differs.

    Raises what `BlobStore.read` raises as well.
    """
    container, name = file.path.split("/", 1)
    data, _ = await store.read(container, name, most=most)
    if file.sha256 and (fault := describe_difference(data, file.sha256)):
        raise ValueError(f"{file.path} is not what was committed: {fault}")
    return data


def describe_difference(data: bytes, sha256: str | None) -> str:
    """Describe how the hash of the data differs; return an empty text if it does not."""
    digest = hashlib.sha256(data).hexdigest()
    return f"its sha256 is {digest}" if digest != sha256 else ""


def _content_changed(job_id: str, name: str, fault: str) -> ContentChanged:
    return ContentChanged(
        f"Blob {name} of container {job_id} is not what the job has committed: {fault}. {_REMEDY}"
    )
