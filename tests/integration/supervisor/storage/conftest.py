"""A job's container, as its owner and as a node see it."""

from collections.abc import Iterator

import pytest
from azure.storage.blob import ContainerClient

from tests.azurite import Azurite
from tests.nodes.supervised import run_spec
from trainer.contract import HEAD, RUN_SPEC, Head, InputFile
from trainer.supervisor.blob.container import BlobAccess, JobContainer


@pytest.fixture
def client(azurite: Azurite) -> Iterator[ContainerClient]:
    """Yield the job's container as its owner sees it."""
    file = InputFile(path="inputs/train.jsonl", size=1, sha256="")
    with azurite.container("job") as job_container:
        job_container.upload_blob(HEAD, Head(generation=1).to_json())
        job_container.upload_blob(RUN_SPEC, run_spec(file, file).to_json())
        yield job_container


@pytest.fixture
def access() -> Iterator[BlobAccess]:
    """Of one supervisor."""
    blob_access = BlobAccess()
    yield blob_access
    blob_access.close()


@pytest.fixture
def container(azurite: Azurite, client: ContainerClient, access: BlobAccess) -> JobContainer:
    """Return the job's container as the node sees it."""
    return JobContainer(access, azurite.container_sas(client.container_name))
