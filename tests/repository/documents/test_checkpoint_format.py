"""docs/checkpoint-format.md agrees with the code, and its reader stays small and independent."""

import ast
import json
import re
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from tests.repository.sources import text
from trainer.checkpoint.fragments import STATES
from trainer.checkpoint.index import FORMAT, RankIndex, StoredFragment, index_name, tensor_key
from trainer.checkpoint.rng_state import RngState
from trainer.contract import (
    CHECKPOINTS_KEPT,
    HEAD,
    MANIFEST,
    RUN_SPEC,
    Committed,
    FileEntry,
    Head,
    Manifest,
    Message,
    checkpoint_path,
)
from trainer.contract.deepspeed_config import BETAS, EPSILON
from trainer.convert.__main__ import FORMS
from trainer.convert.dcp import TRAINING
from trainer.convert.universal import DEEPSPEED
from trainer.rundir import rank_record, tensors_name

PAGE = Path("docs/checkpoint-format.md")
READER = Path("docs/read_checkpoint.py")


@pytest.mark.parametrize(
    ("heading", "message"),
    [
        ("HEAD", Head),
        ("HEAD", Committed),
        ("manifest.json", Manifest),
        ("manifest.json", FileEntry),
        ("rank-NNNNN.index.json", RankIndex),
        ("rank-NNNNN.index.json", StoredFragment),
        ("What is not in the tensors", RngState),
    ],
)
def test_the_page_names_every_member_of_what_is_written(
    heading: str, message: type[Message]
) -> None:
    members = {field.name for field in fields(message)}  # type: ignore[arg-type]

    assert members - names_in_section(heading) == set()


@pytest.mark.parametrize("heading", ["HEAD", "manifest.json", "rank-NNNNN.index.json"])
def test_the_pages_tables_name_no_member_that_is_not_there(heading: str) -> None:
    cells = re.findall(r"^\| (`[^|]+`) \|", section(heading), re.MULTILINE)
    messages = (Head, Committed, Manifest, RankIndex)
    members = {field.name for m in messages for field in fields(m)}

    assert {name for cell in cells for name in re.findall("`([^`]+)`", cell)} <= members


@pytest.mark.parametrize(("name", "message"), [("manifest", Manifest), ("index", RankIndex)])
def test_the_pages_examples_are_read_by_the_code(name: str, message: type[Message]) -> None:
    (example,) = re.findall(rf"^```json {name}\n(.+?)^```", text(PAGE), re.MULTILINE | re.DOTALL)

    assert message.from_json(example).to_plain() == json.loads(example)


def test_the_page_names_files_keys_and_numbers_as_the_code_does() -> None:
    page = text(PAGE)
    folder = checkpoint_path(120, "0badcafe")
    for file in (MANIFEST, index_name(0), tensors_name(0), rank_record(0)):
        assert f"\n{folder}/{file}" in page
    for file in (HEAD, RUN_SPEC):
        assert f"\n{file} " in page
    for state in STATES:
        assert f"`{tensor_key('norm.weight', state)}`".replace("|", "\\|") in page
    assert f"| `format` | int | {FORMAT}, the version of this page" in page
    assert f"HEAD names the newest {CHECKPOINTS_KEPT} " in page
    assert f"betas are {BETAS[0]} and {BETAS[1]}, its epsilon {EPSILON}." in page


def test_the_page_shows_every_form_that_a_checkpoint_can_be_converted_to() -> None:
    page = text(PAGE)

    assert re.findall(r"trainer\.convert --to (\w+)", page) == list(FORMS)
    assert f"DeepSpeed {DEEPSPEED}" in page
    assert f'"{TRAINING}": {{"step": 0}}' in page
    assert f"deepspeed=={DEEPSPEED}" in text(Path("pyproject.toml"))


def test_the_reader_has_110_lines_and_needs_numpy_alone() -> None:
    source = text(READER)
    imports = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Import | ast.ImportFrom)]
    names = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else alias.name
        for node in imports
        for alias in node.names
    }

    assert len(source.splitlines()) <= 110
    assert {n.split(".")[0] for n in names} - sys.stdlib_module_names == {"numpy"}


def names_in_section(heading: str) -> set[str]:
    """Return the code spans in a section."""
    return set(re.findall("`([^`]+)`", section(heading)))


def section(heading: str) -> str:
    """Return the text of the section with this heading."""
    return text(PAGE).split(f"\n## {heading}\n")[1].split("\n## ")[0]
