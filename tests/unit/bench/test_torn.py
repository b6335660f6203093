"""Detection of torn checkpoints: any part missing, changed or written again."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from awscrt.checksums import crc64nvme
from azure.core.exceptions import ResourceNotFoundError
from azure.storage.blob import ContainerClient

from bench.recovery.observed import blobs

PATH = "checkpoints/step-00000020-aa"
DATA = b"weights"


@dataclass
class Download:
    """Result of a download with azure-storage-blob."""

    content: bytes
    properties: SimpleNamespace

    def readall(self) -> bytes:
        """Return the bytes."""
        return self.content


@dataclass
class Container:
    """Fake container in memory, with the operations used here."""

    contents: dict[str, bytes] = field(default_factory=dict)
    etags: dict[str, str] = field(default_factory=dict)
    container_name: str = "ftjob-1"

    def download_blob(self, name: str) -> Download:
        """Return the download of one blob."""
        if name not in self.contents:
            raise ResourceNotFoundError("no such blob")
        return Download(self.contents[name], SimpleNamespace(etag=self.etags.get(name, '"1"')))

    @property
    def client(self) -> ContainerClient:
        """The fake with the type that the benchmark expects."""
        return cast(ContainerClient, self)


@pytest.fixture
def container() -> Container:
    """Return a container with one complete checkpoint that HEAD names."""
    facts = {
        "step": 20,
        "consumed_samples": 80,
        "world_size": 1,
        "generation": 3,
        "kind": "periodic",
    }
    crc = f"{crc64nvme(DATA):016x}"
    file = {"name": "data", "size": len(DATA), "etag": '"1"', "crc64nvme": crc}
    manifest = json.dumps({**facts, "files": [file]}).encode()
    entry = {**facts, "path": PATH, "manifest_sha256": hashlib.sha256(manifest).hexdigest()}
    head = {"generation": 3, "checkpoints": [entry], "model": None}
    return Container(
        {
            "HEAD": json.dumps(head).encode(),
            f"{PATH}/manifest.json": manifest,
            f"{PATH}/data": DATA,
        }
    )


def torn_files(container: Container) -> list[str]:
    (entry,) = blobs.named_entries(blobs.head(container.client))
    return blobs.torn(container.client, entry)


MANIFEST = f"{PATH}/manifest.json"


@pytest.mark.parametrize(
    "tear",
    [
        lambda c: c.contents.pop(MANIFEST),
        lambda c: c.contents.update({MANIFEST: c.contents[MANIFEST] + b" "}),
        lambda c: c.contents.pop(f"{PATH}/data"),
        lambda c: c.contents.update({f"{PATH}/data": DATA[:-1]}),
        lambda c: c.contents.update({f"{PATH}/data": b"weightt"}),
        lambda c: c.etags.update({f"{PATH}/data": '"2"'}),
        lambda c: c.contents.update({"HEAD": c.contents["HEAD"].replace(b'20, "c', b'21, "c')}),
    ],
    ids=["manifest", "its bytes", "file", "its end", "one bit", "written again", "other step"],
)
def test_a_torn_checkpoint_is_found(
    container: Container, tear: Callable[[Container], object]
) -> None:
    assert torn_files(container) == []
    tear(container)

    assert len(torn_files(container)) == 1


def test_what_head_has_let_go_of_may_be_deleted_while_it_is_read(container: Container) -> None:
    entry: dict[str, Any] = blobs.named_entries(blobs.head(container.client))[0]
    empty = {"generation": 4, "checkpoints": [], "model": None}
    container.contents = {"HEAD": json.dumps(empty).encode()}

    assert blobs.torn(container.client, entry) == []


def test_the_newest_periodic_checkpoint_is_told_from_a_stop(container: Container) -> None:
    head = json.loads(container.contents["HEAD"])
    head["checkpoints"].append({**head["checkpoints"][0], "step": 25, "kind": "stop"})

    newest, periodic = blobs.newest(head), blobs.newest(head, "periodic")

    assert (newest or {})["step"] == 25
    assert (periodic or {})["step"] == 20
    assert blobs.newest(None) is None
