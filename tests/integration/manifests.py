"""Files in Blob with their manifest, sealed as a node seals them."""

import hashlib
from collections.abc import Mapping

from awscrt import checksums

from service.storage.store import BlobStore
from trainer.contract import MANIFEST, FileEntry, Manifest


async def seal(
    store: BlobStore,
    container: str,
    path: str,
    files: Mapping[str, bytes],
    *,
    kind: str = "final",
    run_spec_sha256: str = "0" * 64,
) -> str:
    """Write the files, then their manifest; return its SHA-256."""
    entries = [await put_file(store, container, path, name, data) for name, data in files.items()]
    manifest = Manifest(
        step=10,
        consumed_samples=80,
        world_size=2,
        generation=1,
        kind=kind,
        files=tuple(entries),
        run_spec_sha256=run_spec_sha256,
        saved_at=0.0,
        parameters_sha256="1" * 64,
    )
    content = manifest.to_json().encode()
    await store.write(container, f"{path}/{MANIFEST}", content)
    return hashlib.sha256(content).hexdigest()


async def put_file(
    store: BlobStore, container: str, path: str, name: str, data: bytes
) -> FileEntry:
    """Write one file; what a manifest says of it."""
    return FileEntry(
        name=name,
        size=len(data),
        etag=await store.write(container, f"{path}/{name}", data),
        crc64nvme=f"{checksums.crc64nvme(data):016x}",
        sha256=hashlib.sha256(data).hexdigest(),
    )
