"""Manifests of checkpoints and models: nodes write them, so they are bounded before they are read.

A large one takes seconds to decode, so a thread does it.
"""

import asyncio

from service.storage.store import BlobStore, BlobTooLarge
from trainer.contract import MANIFEST, Manifest

LONGEST = 64 * 2**20  # bytes; the sums of 8 TiB of blocks have three quarters of it


class ManifestUnusable(ValueError):
    """It is too long, or makes no sense; the message says which, after the manifest's name."""


async def load(store: BlobStore, job_id: str, path: str) -> bytes:
    """The manifest in folder ``path``. Raises ManifestUnusable and StorageError."""
    try:
        return (await store.read(job_id, f"{path}/{MANIFEST}", most=LONGEST))[0]
    except BlobTooLarge:
        raise ManifestUnusable(f"is longer than {LONGEST} bytes") from None


async def parse(data: bytes) -> Manifest:
    """Decode it. Raises ManifestUnusable."""
    try:
        return await asyncio.to_thread(Manifest.from_json, data)
    except ValueError as error:
        raise ManifestUnusable(f"makes no sense ({error})") from None
