"""Manifests of checkpoints and models: nodes write them, so their size is limited before reading.

Decoding a large one takes seconds, so a thread does it.
"""

import asyncio

from service.storage.store import BlobStore, BlobTooLarge
from trainer.contract import MANIFEST, Manifest

MAX_MANIFEST_BYTES = 64 * 2**20  # bytes; the sums of 8 TiB of blocks have three quarters of it


class ManifestUnusable(ValueError):
    """The manifest is too long or invalid; the message follows the manifest's name."""


async def load(store: BlobStore, job_id: str, path: str) -> bytes:
    """Return the manifest in folder ``path``. Raises ManifestUnusable and StorageError."""
    try:
        return (await store.read(job_id, f"{path}/{MANIFEST}", most=MAX_MANIFEST_BYTES))[0]
    except BlobTooLarge:
        raise ManifestUnusable(f"is longer than {MAX_MANIFEST_BYTES} bytes") from None


async def parse(data: bytes) -> Manifest:
    """Decode a manifest. Raises ManifestUnusable."""
    try:
        return await asyncio.to_thread(Manifest.from_json, data)
    except ValueError as error:
        raise ManifestUnusable(f"is invalid ({error})") from None
