"""Whose a storage account is: the deployment's that used it first, for ever.

A sweep deletes datasets that its database does not know. Two deployments in one account would
delete each other's, so the second one is refused when it uploads, and never sweeps.
"""

from contextlib import suppress

from service.domain.errors import ServiceUnavailable
from service.storage.store import BlobNotFound, BlobStore, PreconditionFailed

CONTAINER = "deployment"
MARK = "owner"


async def owner(store: BlobStore, deployment: str) -> str:
    """The deployment that the account belongs to: this one, if it had no owner yet."""
    try:
        data, _ = await store.read(CONTAINER, MARK)
    except BlobNotFound:
        await store.create_container(CONTAINER)
        with suppress(PreconditionFailed):
            await store.write(CONTAINER, MARK, deployment.encode(), if_absent=True)
        data, _ = await store.read(CONTAINER, MARK)
    return data.decode()


async def check(store: BlobStore, deployment: str) -> None:
    """Raise ServiceUnavailable where the account is another deployment's."""
    if (found := await owner(store, deployment)) != deployment:
        raise ServiceUnavailable(
            f"The storage account of this service belongs to the deployment {found!r}, whose sweep "
            f"would delete the file. Who runs the service must give {deployment!r} an account of "
            f"its own (REKINDLE_STORAGE), or hand this one over: blob {CONTAINER}/{MARK}."
        )
