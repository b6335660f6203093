"""`rekindle download`: whole files or none, gone on with after a break."""

from pathlib import Path

import pytest

from tests.integration.cli.conftest import Shell
from tests.integration.finished_jobs import make_model

FILES = {"config.json": b"{}", "model.safetensors": bytes(range(256)) * 1000, "empty.txt": b""}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return an empty folder to download to."""
    made = tmp_path / "model"
    made.mkdir()
    return made


@pytest.fixture
async def job(shell: Shell) -> str:
    """Return the id of a job whose final model is in Blob storage."""
    return str((await make_model(shell.world, FILES))["id"])


def held(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


async def test_a_model_is_downloaded_whole_and_once(shell: Shell, job: str, folder: Path) -> None:
    first = await shell.run("download", job, str(folder), "--json")
    again = await shell.run("download", job, str(folder), "--json")

    assert held(folder) == FILES
    assert {f["outcome"] for f in first.json["files"]} == {"downloaded"}
    assert {f["outcome"] for f in again.json["files"]} == {"already present"}


async def test_a_download_begins_anew_where_a_gateway_sends_the_whole_file(
    shell: Shell, job: str, folder: Path
) -> None:
    (folder / "model.safetensors.part").write_bytes(FILES["model.safetensors"][:100_000])
    shell.switch.knows_ranges = False

    ended = await shell.run("download", job, str(folder))

    assert (ended.code, held(folder)) == (0, FILES)


async def test_a_download_goes_on_where_it_broke_off(shell: Shell, job: str, folder: Path) -> None:
    (folder / "model.safetensors.part").write_bytes(FILES["model.safetensors"][:100_000])
    answer = await shell.world.call(
        "GET",
        f"/v1/fine_tuning/jobs/{job}/model/model.safetensors",
        headers={"range": "bytes=100000-"},
    )

    ended = await shell.run("download", job, str(folder))

    assert (answer.status_code, answer.content) == (206, FILES["model.safetensors"][100_000:])
    assert answer.headers["content-range"] == "bytes 100000-255999/256000"
    assert ended.code == 0
    assert held(folder) == FILES


async def test_what_arrives_changed_gets_no_name(shell: Shell, job: str, folder: Path) -> None:
    (folder / "model.safetensors.part").write_bytes(b"x" * 100_000)

    ended = await shell.run("download", job, str(folder))
    mended = await shell.run("download", job, str(folder))

    assert ended.code == 1
    assert "checksum" in ended.err
    assert mended.code == 0
    assert held(folder) == FILES


async def test_a_file_of_the_same_size_but_other_content_is_replaced(
    shell: Shell, job: str, folder: Path
) -> None:
    (folder / "config.json").write_bytes(b"[]")

    await shell.run("download", job, str(folder))

    assert held(folder) == FILES


async def test_no_other_jobs_model_is_overwritten(shell: Shell, job: str, folder: Path) -> None:
    (folder / "report.json").write_text('{"job_id": "ftjob-first"}')

    refused = await shell.run("download", job, str(folder))

    assert refused.code != 0
    assert "holds the model of job ftjob-first" in refused.err
    assert sorted(held(folder)) == ["report.json"]
