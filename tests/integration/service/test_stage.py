"""The base model store: what is staged was checked, is whole, and never changes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from azure.storage.blob import BlobServiceClient, ContainerClient

from rekindle import stage as staging
from rekindle.model_check import StagingError, check_model
from rekindle.stage import container_name
from tests.azurite import Azurite
from tests.unit.models import model_folders as make
from trainer.tiny import build


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the tiny model."""
    folder = tmp_path_factory.mktemp("whole") / "tiny"
    build(folder)
    return folder


@pytest.fixture
def folder(model_folder: Path, tmp_path: Path) -> Path:
    """Return a copy of the tiny model."""
    return make.copy_of(model_folder, tmp_path / "model")


@pytest.fixture
def name() -> str:
    """Return a model of the test's own in the shared Blob server."""
    return f"tests/{uuid4().hex}"


def test_head_names_every_file_and_staging_again_brings_back_what_was_deleted_alone(
    azurite: Azurite, folder: Path, name: str
) -> None:
    revision = stage(azurite.connection_string, name, folder)
    head = _head(azurite, name)

    assert (head["name"], head["revision"]) == (name, revision)
    assert head["config"]["hidden_size"] == 128
    assert {f["name"] for f in head["files"]} == {path.name for path in folder.iterdir()}
    before = _blobs(azurite, name)
    assert {*before} == {"HEAD", *(f"{revision}/{f['name']}" for f in head["files"])}
    stage(azurite.connection_string, name, folder)
    assert _blobs(azurite, name) == before
    with BlobServiceClient.from_connection_string(azurite.connection_string) as account:
        account.get_blob_client(container_name(name), f"{revision}/config.json").delete_blob()

    stage(azurite.connection_string, name, folder)
    assert f"{revision}/config.json" in _blobs(azurite, name)


def test_other_weights_are_another_revision_and_the_old_one_stays(
    azurite: Azurite, folder: Path, name: str
) -> None:
    first = stage(azurite.connection_string, name, folder)
    make.set_members(folder / "config.json", attention_dropout=0.5)
    second = stage(azurite.connection_string, name, folder)

    assert first != second
    assert f"{first}/model.safetensors" in _blobs(azurite, name)
    assert _head(azurite, name)["revision"] == second


def test_a_revision_is_never_given_other_content(azurite: Azurite, folder: Path, name: str) -> None:
    stage(azurite.connection_string, name, folder, "main-1")
    make.set_members(folder / "config.json", attention_dropout=0.5)

    with pytest.raises(StagingError, match="choose another --revision"):
        stage(azurite.connection_string, name, folder, "main-1")
    assert _head(azurite, name)["config"]["attention_dropout"] == 0.1


def test_a_folder_that_is_refused_leaves_nothing_behind(
    azurite: Azurite, folder: Path, name: str
) -> None:
    make.rewrite(folder, lambda weights: {n: t for n, t in weights.items() if "norm" not in n})

    with pytest.raises(StagingError, match=r"7 tensors .* would be random: model\.layers\.0"):
        staging.stage_model(azurite.connection_string, name, folder)
    with BlobServiceClient.from_connection_string(azurite.connection_string) as account:
        assert not account.get_container_client(container_name(name)).exists()


def test_warnings_are_printed_and_the_model_is_staged(
    azurite: Azurite, folder: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "chat_template.jinja").unlink()

    staging.stage_model(azurite.connection_string, name, folder)

    assert "warning: the folder has no chat template" in capsys.readouterr().err
    assert _head(azurite, name)["name"] == name


def test_only_what_is_staged_as_it_is_goes_unchecked(
    azurite: Azurite, folder: Path, name: str
) -> None:
    checked: list[Path] = []

    def check(path: Path) -> list[str]:
        checked.append(path)
        return []

    for change in (None, None, "same size", "other size"):
        if change == "same size":  # as the weights of another training have
            make.rewrite(folder, lambda weights: {n: t + 1 for n, t in weights.items()})
        if change == "other size":
            (folder / "LICENSE.txt").write_text("free")
        staging.stage_model(azurite.connection_string, name, folder, check=check)

    assert len(checked) == 3


def test_what_an_older_release_has_staged_unchecked_is_checked(
    azurite: Azurite, folder: Path, name: str
) -> None:
    (folder / "tokenizer.json").unlink()
    staging.stage_model(azurite.connection_string, name, folder, check=lambda _: [])
    with _container(azurite, name) as container:
        head = {k: v for k, v in _head(azurite, name).items() if k != "checked"}
        container.upload_blob("HEAD", json.dumps(head), overwrite=True)

    with pytest.raises(StagingError, match=r"has no tokenizer\.json"):
        staging.stage_model(azurite.connection_string, name, folder)


def test_every_fault_has_a_line_and_none_is_a_traceback(folder: Path) -> None:
    (folder / "optimizer.pt").touch()
    (folder / "model.safetensors").write_bytes(b"")

    with pytest.raises(StagingError) as error:
        check_model(folder)

    assert [line.split(" ")[0] for line in str(error.value).splitlines()] == [
        "optimizer.pt",
        "model.safetensors",
    ]


def test_a_folder_that_is_not_there_is_named(azurite: Azurite, tmp_path: Path, name: str) -> None:
    with pytest.raises(StagingError, match=r"there is no folder .*nowhere"):
        staging.stage_model(azurite.connection_string, name, tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("storage", "answer"),
    [
        ("", "make up prints it"),
        ("nonsense", "is not a URL or connection string"),
        ("AccountName=a;AccountKey=aa==;BlobEndpoint=http://127.0.0.1:9/a;", "does not answer"),
    ],
)
def test_an_unusable_storage_account_is_reported_in_one_line(
    folder: Path, storage: str, answer: str
) -> None:
    command = [sys.executable, "-m", "rekindle.stage", "--name", "a", str(folder)]
    completed = subprocess.run(
        [*command, "--storage", storage], capture_output=True, text=True, check=False
    )

    assert completed.returncode in (1, 2)
    assert answer in completed.stderr.splitlines()[-1]
    assert "Traceback" not in completed.stderr


def stage(storage: str, name: str, folder: Path, revision: str = "") -> str:
    """Stage a model that needs no check."""
    return staging.stage_model(storage, name, folder, revision, check=lambda _: [])


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
