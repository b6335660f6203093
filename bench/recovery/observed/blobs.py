"""Checks of Blob: HEAD, and whether the blobs that it names are complete and unchanged."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from awscrt.checksums import crc64nvme
from azure.core.exceptions import ResourceNotFoundError
from azure.storage.blob import BlobServiceClient, ContainerClient

HEAD, MANIFEST = "HEAD", "manifest.json"
CRC64_HEX_DIGITS = 16
Entry = dict[str, Any]  # HEAD's entry of one committed checkpoint or model


class Containers:
    """Containers of the jobs, read with the account's key."""

    def __init__(self, storage: str) -> None:
        self._account = BlobServiceClient.from_connection_string(storage)

    def close(self) -> None:
        """Close the connections."""
        self._account.close()

    def of(self, job: str) -> ContainerClient:
        """Return the container of a job, which has the job's name."""
        return self._account.get_container_client(job)


def head(container: ContainerClient) -> dict[str, Any] | None:
    """Return the current HEAD; None before it is written."""
    data = _read(container, HEAD)
    return None if data is None else json.loads(data)


def named_entries(head: dict[str, Any] | None) -> list[Entry]:
    """Return all committed checkpoints, oldest first, and then the model."""
    if head is None:
        return []
    return [*head["checkpoints"], *([head["model"]] if head["model"] else [])]


def newest(head: dict[str, Any] | None, kind: str = "") -> Entry | None:
    """Return the newest checkpoint, or the newest of a kind ("periodic", "stop")."""
    entries = [e for e in (head or {"checkpoints": []})["checkpoints"] if kind in ("", e["kind"])]
    return entries[-1] if entries else None


def torn(container: ContainerClient, entry: Entry) -> list[str]:
    """Return the faults of a committed entry, unless HEAD no longer names it."""
    faults = list(_faults(container, entry))
    if faults and entry["path"] not in [e["path"] for e in named_entries(head(container))]:
        return []  # removed from HEAD and deleted during the check
    return [f"{container.container_name}/{entry['path']}: {fault}" for fault in faults]


def _faults(container: ContainerClient, entry: Entry) -> Iterator[str]:
    data = _read(container, f"{entry['path']}/{MANIFEST}")
    if data is None:
        yield "HEAD names it, but its manifest is not there"
        return
    if hashlib.sha256(data).hexdigest() != entry["manifest_sha256"]:
        yield "the manifest is not the one that HEAD names"
        return
    manifest = json.loads(data)
    for member in ("step", "consumed_samples", "world_size", "generation", "kind"):
        if manifest[member] != entry[member]:
            yield f"{member} is {manifest[member]} in the manifest, {entry[member]} in HEAD"
    for file in manifest["files"]:
        yield from _file_faults(container, f"{entry['path']}/{file['name']}", file)


def _file_faults(container: ContainerClient, name: str, file: Entry) -> Iterator[str]:
    try:
        download = container.download_blob(name)
    except ResourceNotFoundError:
        yield f"{file['name']} is not there"
        return
    content = download.readall()
    if len(content) != file["size"]:
        yield f"{file['name']} has {len(content)} bytes, not {file['size']}"
    elif f"{crc64nvme(content):0{CRC64_HEX_DIGITS}x}" != file["crc64nvme"]:
        yield f"{file['name']} has other bytes than were saved"
    if download.properties.etag.strip('"') != file["etag"].strip('"'):
        yield f"{file['name']} was written again after it was committed"


def _read(container: ContainerClient, name: str) -> bytes | None:
    try:
        return container.download_blob(name).readall()
    except ResourceNotFoundError:
        return None
