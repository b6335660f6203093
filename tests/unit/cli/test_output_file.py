from pathlib import Path

import pytest

from rekindle.cli.errors import CliError
from rekindle.cli.output_file import partial_file


def write(path: Path) -> None:
    with partial_file(path) as part:
        part.parent.mkdir(parents=True, exist_ok=True)
        part.write_text("all of it")


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
