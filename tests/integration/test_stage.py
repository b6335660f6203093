"""The base model store: what is staged is whole, never changes, and never is a pickle."""

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from azure.storage.blob import BlobServiceClient, ContainerClient

from rekindle.stage import CannotStage, container_name, stage
from tests.azurite import Azurite

HEADER = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A base model of one number."""
    (tmp_path / "config.json").write_text('{"hidden_size": 1}')
    weights = struct.pack("<Q", len(HEADER)) + HEADER + bytes(4)
    (tmp_path / "model.safetensors").write_bytes(weights)
    return tmp_path


@pytest.fixture
def name() -> str:
    """A model of the test's own in the shared Blob server."""
    return f"tests/{uuid4().hex}"


def test_head_names_every_file_and_the_configuration(
    azurite: Azurite, folder: Path, name: str
) -> None:
    revision = stage(azurite.connection_string, name, folder)
    head = _head(azurite, name)

    assert (head["name"], head["revision"]) == (name, revision)
    assert head["config"] == {"hidden_size": 1}
    assert [f["name"] for f in head["files"]] == ["config.json", "model.safetensors"]
    assert {*_blobs(azurite, name)} == {"HEAD", *(f"{revision}/{f['name']}" for f in head["files"])}


def test_staging_again_changes_nothing(azurite: Azurite, folder: Path, name: str) -> None:
    stage(azurite.connection_string, name, folder)
    before = _blobs(azurite, name)

    stage(azurite.connection_string, name, folder)

    assert _blobs(azurite, name) == before


def test_staging_again_brings_back_what_was_deleted(
    azurite: Azurite, folder: Path, name: str
) -> None:
    revision = stage(azurite.connection_string, name, folder)
    with BlobServiceClient.from_connection_string(azurite.connection_string) as account:
        account.get_blob_client(container_name(name), f"{revision}/config.json").delete_blob()

    stage(azurite.connection_string, name, folder)

    assert f"{revision}/config.json" in _blobs(azurite, name)


def test_other_weights_are_another_revision_and_the_old_one_stays(
    azurite: Azurite, folder: Path, name: str
) -> None:
    first = stage(azurite.connection_string, name, folder)
    (folder / "config.json").write_text('{"hidden_size": 2}')
    second = stage(azurite.connection_string, name, folder)

    assert first != second
    assert f"{first}/model.safetensors" in _blobs(azurite, name)
    assert _head(azurite, name)["revision"] == second


def test_a_revision_is_never_given_other_content(azurite: Azurite, folder: Path, name: str) -> None:
    stage(azurite.connection_string, name, folder, "main-1")
    (folder / "config.json").write_text('{"hidden_size": 2}')

    with pytest.raises(CannotStage, match="choose another --revision"):
        stage(azurite.connection_string, name, folder, "main-1")
    assert _head(azurite, name)["config"] == {"hidden_size": 1}


@pytest.mark.parametrize("pickle", ["pytorch_model.bin", "model.pt", "weights.pkl"])
def test_a_pickle_is_refused_by_name(
    azurite: Azurite, folder: Path, name: str, pickle: str
) -> None:
    (folder / pickle).touch()

    with pytest.raises(CannotStage, match=f"{pickle} is a pickle"):
        stage(azurite.connection_string, name, folder)


@pytest.mark.parametrize("content", [b"", b"\x80\x04K\x01.", b"\xff" * 64])
def test_a_pickle_that_is_called_safetensors_is_refused(
    azurite: Azurite, folder: Path, name: str, content: bytes
) -> None:
    (folder / "model.safetensors").write_bytes(content)

    with pytest.raises(CannotStage, match="not a safetensors file"):
        stage(azurite.connection_string, name, folder)


def test_a_folder_that_is_not_there_is_named(azurite: Azurite, tmp_path: Path, name: str) -> None:
    with pytest.raises(CannotStage, match=r"there is no folder .*nowhere"):
        stage(azurite.connection_string, name, tmp_path / "nowhere")


def test_a_configuration_that_is_not_json_is_refused(
    azurite: Azurite, folder: Path, name: str
) -> None:
    (folder / "config.json").write_text("hidden_size: 1")

    with pytest.raises(CannotStage, match=r"config\.json is not JSON"):
        stage(azurite.connection_string, name, folder)


@pytest.mark.parametrize(
    ("storage", "answer"),
    [
        ("", "make up prints it"),
        ("nonsense", "is no connection string"),
        ("AccountName=a;AccountKey=aa==;BlobEndpoint=http://127.0.0.1:9/a;", "does not answer"),
    ],
)
def test_a_storage_that_cannot_be_used_is_told_in_one_line(
    folder: Path, storage: str, answer: str
) -> None:
    command = [sys.executable, "-m", "rekindle.stage", "--name", "a", str(folder)]
    told = subprocess.run(
        [*command, "--storage", storage], capture_output=True, text=True, check=False
    )

    assert told.returncode in (1, 2)
    assert answer in told.stderr.splitlines()[-1]
    assert "Traceback" not in told.stderr


def _head(azurite: Azurite, name: str) -> dict[str, Any]:
    with _container(azurite, name) as container:
        head: dict[str, Any] = json.loads(container.download_blob("HEAD").readall())
        return head


def _blobs(azurite: Azurite, name: str) -> dict[str, str]:
    """Blob name -> ETag."""
    with _container(azurite, name) as container:
        return {blob.name: str(blob.etag) for blob in container.list_blobs()}


def _container(azurite: Azurite, name: str) -> ContainerClient:
    account = BlobServiceClient.from_connection_string(azurite.connection_string)
    return account.get_container_client(container_name(name))
