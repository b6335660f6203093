"""Base models near the machines: whole copies in storage accounts of other regions.

The region's HEAD is written last, so a copy that it names is whole. Nodes read from such a copy or,
without one, from the main account: a copy saves time and egress, and is never required.
"""

from collections.abc import Collection
from datetime import datetime, timedelta

from service.operations.models import models
from service.storage.store import BlobNotFound, BlobStore

COPY_URL_LIFETIME = timedelta(days=2)  # of the URL that an account copies from: 140 GB need hours


async def copy_model(
    main: BlobStore, regional: BlobStore, container_name: str, now: datetime
) -> bool:
    """Advance the copy of a base model near the machines; return True when this makes it whole.

    Only requests copies: the accounts copy among themselves. Repeating is harmless. Raises
    StorageError, and ValueError when the main account's HEAD is invalid.
    """
    try:
        head, _ = await main.read(container_name, models.HEAD)
    except BlobNotFound:
        return False  # not yet staged
    if await _read_head(regional, container_name) == head:
        return False
    await regional.create_container(container_name)
    is_complete = True
    for file in models.parse_head(container_name, head).model.files:
        container, name = file.path.split("/", 1)
        is_complete &= await regional.copy(
            container, name, main, expires_at=now + COPY_URL_LIFETIME
        )
    if is_complete:
        await regional.write(container_name, models.HEAD, head)
    return is_complete


async def list_copied_inputs(regional: BlobStore, inputs: Collection[str]) -> frozenset[str]:
    """Return the job's inputs ("container/blob name") of which the account has a whole copy."""
    models_of = {path.split("/", 1)[0] for path in inputs if path.startswith(models.PREFIX)}
    paths: set[str] = set()
    for container in models_of:
        head = await _read_head(regional, container)
        if head is not None:
            paths |= {file.path for file in models.parse_head(container, head).model.files}
    return frozenset(paths.intersection(inputs))


async def _read_head(store: BlobStore, container: str) -> bytes | None:
    try:
        return (await store.read(container, models.HEAD))[0]
    except BlobNotFound:
        return None
