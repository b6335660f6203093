"""`rekindle download` and `rekindle tier`: whole files or none, and where they lie."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from rekindle.cli.command import Cli
from rekindle.cli.connection import ConnectionOptions
from rekindle.cli.errors import CliError
from rekindle.cli.models.download import download_model
from tests.integration.cli.conftest import Shell
from tests.integration.finished_jobs import make_model
from tests.integration.stored_jobs import finish_job, list_tiers, make_moves

FILES = {"config.json": b"{}", "model.safetensors": bytes(range(256)) * 1000, "empty.txt": b""}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return an empty folder to download to."""
    model_folder = tmp_path / "model"
    model_folder.mkdir()
    return model_folder


@pytest.fixture
async def job(shell: Shell) -> str:
    """Return the id of a job whose final model is in Blob storage."""
    return str((await make_model(shell.world, FILES))["id"])


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


async def test_a_model_is_downloaded_whole_and_once(shell: Shell, job: str, folder: Path) -> None:
    first = await shell.run("download", job, str(folder), "--json")
    repeated = await shell.run("download", job, str(folder), "--json")

    assert contents(folder) == FILES
    assert {f["outcome"] for f in first.json["files"]} == {"downloaded"}
    assert {f["outcome"] for f in repeated.json["files"]} == {"already present"}


async def test_a_download_begins_anew_where_a_gateway_sends_the_whole_file(
    shell: Shell, job: str, folder: Path
) -> None:
    (folder / "model.safetensors.part").write_bytes(FILES["model.safetensors"][:100_000])
    shell.switch.knows_ranges = False

    result = await shell.run("download", job, str(folder))

    assert (result.code, contents(folder)) == (0, FILES)


async def test_a_download_goes_on_where_it_broke_off(shell: Shell, job: str, folder: Path) -> None:
    (folder / "model.safetensors.part").write_bytes(FILES["model.safetensors"][:100_000])
    response = await shell.world.call(
        "GET",
        f"/v1/fine_tuning/jobs/{job}/model/model.safetensors",
        headers={"range": "bytes=100000-"},
    )

    result = await shell.run("download", job, str(folder))

    assert (response.status_code, response.content) == (206, FILES["model.safetensors"][100_000:])
    assert response.headers["content-range"] == "bytes 100000-255999/256000"
    assert result.code == 0
    assert contents(folder) == FILES


async def test_what_arrives_changed_gets_no_name(shell: Shell, job: str, folder: Path) -> None:
    (folder / "model.safetensors.part").write_bytes(b"x" * 100_000)

    result = await shell.run("download", job, str(folder))
    mended = await shell.run("download", job, str(folder))

    assert result.code == 1
    assert "checksum" in result.err
    assert mended.code == 0
    assert contents(folder) == FILES


async def test_a_file_of_the_same_size_but_other_content_is_replaced(
    shell: Shell, job: str, folder: Path
) -> None:
    (folder / "config.json").write_bytes(b"[]")

    await shell.run("download", job, str(folder))

    assert contents(folder) == FILES


async def test_no_other_jobs_model_is_overwritten(shell: Shell, job: str, folder: Path) -> None:
    (folder / "report.json").write_text('{"job_id": "ftjob-first"}')

    refusal = await shell.run("download", job, str(folder))

    assert refusal.code != 0
    assert "holds the model of job ftjob-first" in refusal.err
    assert sorted(contents(folder)) == ["report.json"]


def test_a_file_whose_name_leads_out_of_the_folder_is_refused(folder: Path) -> None:
    cli = Cli(ConnectionOptions(), as_json=True)
    files = [{"name": "../outside", "bytes": 0, "sha256": ""}]
    vars(cli)["client"] = SimpleNamespace(get=lambda _: {"data": files})

    with pytest.raises(CliError, match=f"which is outside {folder}"):
        download_model(cli, f"ftjob-{'0' * 26}", folder)


@pytest.fixture
async def stored(shell: Shell) -> str:
    """Return the id of a finished stored that has checkpoints and a model."""
    return await finish_job(shell.world)


async def carry_out(shell: Shell) -> None:
    while await make_moves(shell.world).run_once():
        pass


async def test_it_shows_what_lies_where_and_what_a_move_would_cost(
    shell: Shell, stored: str
) -> None:
    output = await shell.run("tier", stored)
    document = (await shell.run("tier", "last", "--json")).json
    dry = await shell.run("tier", stored, "archive", "--dry-run")
    bill = await shell.run("cost", stored)
    await carry_out(shell)

    assert (output.code, dry.code) == (0, 0)
    assert [f["kind"] for f in document["folders"]] == ["checkpoint"] * 3 + ["model"]
    for text in ("checkpoint of step 6", "model", "hot", "online", "storage cost so far"):
        assert text in output.out
    for text in ("early deletion", "per month", "to read all of it", "free to leave", "2026-11-20"):
        assert text in dry.out
    tiers = (await list_tiers(shell.world.store, stored, "models/")).values()
    assert {b.tier for b in tiers} == {"hot"}, "a dry run moves nothing"
    assert "storage (included)" in bill.out


async def test_an_archived_model_says_how_to_get_it_back(shell: Shell, stored: str) -> None:
    requested = await shell.run("tier", stored, "archive", "--yes")
    await carry_out(shell)
    output = await shell.run("tier", stored)
    refusal = await shell.run("download", stored)
    restored = await shell.run("tier", stored, "hot", "--priority", "high", "--yes")
    await carry_out(shell)
    repeated = await shell.run("tier", stored, "hot", "--yes")

    assert requested.code == 0
    assert "moves to archive" in requested.out
    assert (
        "archived; rehydrates in 15 h 00 min for $0.0006, in 1 h 00 min for $0.0050" in output.out
    )
    assert refusal.code == 1
    assert f"rekindle tier {stored} hot" in refusal.err
    assert "at the latest" in restored.out
    assert "is already in hot" in repeated.out


async def test_a_checkpoint_is_named_by_its_step(shell: Shell, stored: str) -> None:
    result = await shell.run("tier", stored, "cold", "--checkpoint", "4", "--yes", "--json")
    missing = await shell.run("tier", stored, "cold", "--checkpoint", "5", "--yes")

    assert (result.code, result.json["step_number"], result.json["to"]) == (0, 4, "cold")
    assert missing.code == 5
    assert "no checkpoint '5'" in missing.err
