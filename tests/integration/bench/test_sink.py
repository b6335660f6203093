"""Both sinks of the checkpoint benchmark, with Azure's client and with raw sockets."""

import base64
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from awscrt import checksums
from azure.core import MatchConditions
from azure.core.exceptions import (
    HttpResponseError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)
from azure.storage.blob import BlobBlock, ContainerClient

from bench.checkpoint import limits
from bench.checkpoint.sink import Sink, running

MIB = 2**20
SOME = bytes(range(256)) * (5 * MIB // 512)  # two chunks and a half


@pytest.fixture(params=["c", "python"], scope="module")
def sink(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sink]:
    """Run each kind of sink; both must give the same answers."""
    folder = tmp_path_factory.mktemp("sink")
    with running(folder, warm_mib=8, check=True, kind=request.param) as started:
        yield started


@pytest.fixture
def container(sink: Sink) -> Iterator[ContainerClient]:
    """Yield Azure's client of the sink's container."""
    with ContainerClient.from_container_url(sink.url(), retry_total=0) as client:
        yield client
    sink.reset()


def test_blocks_become_a_blob_in_the_order_of_their_list(container: ContainerClient) -> None:
    blob = container.get_blob_client("a/b")
    for name, data in (("two", b"two"), ("one", SOME)):
        blob.stage_block(name, data)
    blob.commit_block_list([BlobBlock("one"), BlobBlock("two")], metadata={"crc64nvme": "00ff"})
    properties = blob.get_blob_properties()

    assert blob.download_blob().readall() == SOME + b"two"
    assert (properties.size, properties.metadata) == (len(SOME) + 3, {"crc64nvme": "00ff"})


@pytest.mark.parametrize(
    ("offset", "length"), [(0, 1), (MIB - 1, 2), (MIB, MIB), (len(SOME) - 1, 99)]
)
def test_a_range_is_those_bytes_only(container: ContainerClient, offset: int, length: int) -> None:
    blob = container.get_blob_client("ranged")
    blob.upload_blob(SOME)

    assert blob.download_blob(offset, length).readall() == SOME[offset : offset + length]


@pytest.mark.parametrize("quotes", ["", '"'])
def test_conditions_guard_what_is_there(container: ContainerClient, quotes: str) -> None:
    blob = container.get_blob_client("guarded")
    first = quotes + blob.upload_blob(b"1")["etag"].strip('"') + quotes
    with pytest.raises(ResourceExistsError):
        blob.upload_blob(b"2", overwrite=False)
    second = blob.upload_blob(
        b"2", overwrite=True, etag=first, match_condition=MatchConditions.IfNotModified
    )["etag"]
    with pytest.raises(ResourceModifiedError):
        blob.upload_blob(
            b"3", overwrite=True, etag=first, match_condition=MatchConditions.IfNotModified
        )

    assert first != second
    assert blob.download_blob().readall() == b"2"


def test_what_breaks_a_condition_of_azure_is_refused(container: ContainerClient) -> None:
    blob = container.get_blob_client("x")
    with pytest.raises(HttpResponseError, match="InvalidBlockList"):
        blob.commit_block_list([BlobBlock("never")])

    blob.upload_blob(b"123")
    with pytest.raises(HttpResponseError) as error:
        blob.download_blob(3, 1).readall()
    assert error.value.status_code == 416, "a range behind the end"

    right = {"x-ms-content-crc64": _base64(checksums.crc64nvme(SOME).to_bytes(8, "little"))}
    blob.stage_block("a", SOME, headers=right)
    with pytest.raises(HttpResponseError, match="Crc64Mismatch"):
        blob.stage_block("a", SOME[:-1], headers=right)
    with pytest.raises(ResourceExistsError):
        blob.commit_block_list([BlobBlock("a")], match_condition=MatchConditions.IfMissing)


def test_a_listing_tells_names_sizes_tags_and_folders(container: ContainerClient) -> None:
    for name in ("d/1", "d/2", "d/e/3", "other"):
        container.upload_blob(name, name.encode(), metadata={"a": "b"})
    blobs = {b.name: b for b in container.list_blobs(name_starts_with="d/", include=["metadata"])}
    etag = container.get_blob_client("d/1").get_blob_properties().etag
    walked = {b.name for b in container.walk_blobs(name_starts_with="d/")}

    assert list(blobs) == ["d/1", "d/2", "d/e/3"]
    assert (blobs["d/1"].size, blobs["d/1"].metadata) == (3, {"a": "b"})
    assert blobs["d/1"].etag == etag.strip('"')
    assert walked == {"d/1", "d/2", "d/e/"}


def test_what_was_copied_outlives_what_was_deleted(container: ContainerClient) -> None:
    source, copy = container.get_blob_client("source"), container.get_blob_client("copy")
    source.upload_blob(SOME)
    copy.start_copy_from_url(source.url)
    source.delete_blob()
    with pytest.raises(ResourceNotFoundError):
        source.get_blob_properties()

    assert copy.download_blob().readall() == SOME


def test_what_is_forgotten_is_gone_and_what_went_by_is_counted(
    sink: Sink, container: ContainerClient
) -> None:
    before = sink.stats()
    container.upload_blob("x", SOME)
    container.download_blob("x").readall()
    after = sink.stats()
    sink.reset()

    assert after["bytes_in"] - before["bytes_in"] == len(SOME)
    assert after["bytes_out"] - before["bytes_out"] == len(SOME)
    assert list(container.list_blobs()) == []


def test_over_tls_the_same_is_stored_and_raw_sockets_take_as_many_bytes_as_asked(
    sink: Sink,
) -> None:
    with ContainerClient.from_container_url(
        sink.url(tls=True), retry_total=0, connection_verify=str(sink.authority)
    ) as container:
        container.upload_blob("x", SOME)
        assert container.download_blob("x").readall() == SOME
    for tls in (False, True):
        rate = limits.raw(sink, mib=3, streams=2, tls=tls)
        assert min(rate.save_gib_s, rate.load_gib_s) > 0


def test_a_sink_ends_with_its_user(tmp_path: Path) -> None:
    with running(tmp_path, kind="python") as started:
        port = started.raw
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
