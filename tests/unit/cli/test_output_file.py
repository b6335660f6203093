"""Measurements in files and for other programs."""

from pathlib import Path

import pytest

from contract import events_file
from contract.figures import tagged
from rekindle.cli.errors import CliError, ExitCode
from rekindle.cli.jobs.trackers import _import_package
from rekindle.cli.output_file import partial_file


def write(path: Path) -> None:
    with partial_file(path) as partial:
        partial.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text("all of it")


def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    write(tmp_path / "new" / "steps.csv")

    assert (tmp_path / "new" / "steps.csv").read_text() == "all of it"
    assert len(list((tmp_path / "new").iterdir())) == 1


def test_a_folder_far_above_that_cannot_be_made_is_an_error_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    path = tmp_path / "link" / "a" / "b" / "steps.csv"

    with pytest.raises(CliError) as raised:
        write(path)

    assert f"Cannot write {path}: " in str(raised.value)


def test_a_partial_file_that_cannot_be_looked_up_does_not_hide_the_error(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 253)  # with the partial file's ending it is too long

    with pytest.raises(CliError) as raised:
        write(path)

    assert f"Cannot write {path}: File name too long." in str(raised.value)


def test_an_error_of_an_input_file_is_not_one_of_the_output(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), partial_file(tmp_path / "out.csv"):
        (tmp_path / "in" / "chats.jsonl").read_text()


# Both as TensorFlow's own writer makes them (tensorboard 2.21, summary.writer.record_writer).
BEGINNING = bytes.fromhex(
    "1800000000000000a37f4b220900001040fc54d9411a0d627261696e2e4576656e743a32338d2fe9"
)
EVENT = bytes.fromhex(
    "34000000000000005e33175c0900006040fc54d94110ac022a260a110a0a747261696e2f6c6f737315000020400a110a0a76616c69642f6c6f737315cdcccc3d7f81e0bd"
)


def test_the_checksum_is_castagnolis() -> None:
    assert events_file.crc32c(b"123456789") == 0xE3069283  # RFC 3720's and everybody's check


def test_a_file_is_byte_for_byte_what_tensorboards_own_writer_makes() -> None:
    assert events_file.beginning(1700000000.25) == BEGINNING
    assert events_file.event(1700000001.5, 300, {"train/loss": 2.5, "valid/loss": 0.1}) == EVENT


@pytest.mark.parametrize(
    ("row", "tags"),
    [
        ({"step": 3, "generation": 1, "loss": 0.5, "valid_loss": None}, {"train/loss": 0.5}),
        ({"loss": 1.0, "valid_loss": 2.0}, {"train/loss": 1.0, "valid/loss": 2.0}),
        (
            {"loss": 1.0, "reward": 0.25, "valid_loss": -0.5},
            {"train/loss": 1.0, "train/reward": 0.25, "valid/reward": 0.5},
        ),
        ({"loss": float("inf"), "grad_norm": float("nan"), "tokens": 7}, {"train/tokens": 7}),
    ],
)
def test_each_number_has_a_tag(row: dict[str, float | None], tags: dict[str, float]) -> None:
    assert tagged(row) == tags


def test_a_package_that_is_missing_is_named_with_what_needs_none() -> None:
    with pytest.raises(CliError) as raised:
        _import_package("no_such_tracker", "--mlflow")

    assert "--mlflow needs the package no_such_tracker" in raised.value.message
    assert raised.value.exit_code == ExitCode.USAGE
    assert "--tensorboard" in raised.value.advice
