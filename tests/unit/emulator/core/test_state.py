"""The emulator's memory on disk."""

import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from emulator.core import rows
from emulator.core.state import (
    EmulatorState,
    InstanceRow,
    ScaleSetRow,
)
from emulator.core.store import StateFile, StateUnreadable, occupy


def put_scale_set(state: EmulatorState, instances: int = 1) -> ScaleSetRow:
    model = {"location": "eastus", "sku": {"capacity": instances}, "properties": {}}
    scale_set = state.put(ScaleSetRow("s", "G", "Set", model, "", 1.0, "u"))
    for number in range(instances):
        state.put(InstanceRow(scale_set.key, str(number), "vm", "token", "127.0.0.2", 1.0))
    return scale_set


def stored_rows(folder: Path) -> dict[rows.Path, rows.FrozenRow]:
    return StateFile(folder).state.rows()


@pytest.fixture
def store(tmp_path: Path) -> StateFile:
    state_file = StateFile(tmp_path)
    put_scale_set(state_file.state, 12)
    state_file.commit()
    return state_file


@pytest.fixture
def one(store: StateFile) -> ScaleSetRow:
    (row,) = store.state.scale_sets.values()
    return row


def test_what_is_not_committed_is_forgotten_whole(
    tmp_path: Path, store: StateFile, one: ScaleSetRow
) -> None:
    before = stored_rows(tmp_path)
    store.state.resize(one, 3)
    store.state.change(one.instances["0"], doom="evicted")
    store.state.remove(one.instances["1"])
    store.state.change(store.state.globals, next_address=2)

    assert stored_rows(tmp_path) == before


def test_only_the_rows_that_changed_are_written(
    tmp_path: Path, store: StateFile, one: ScaleSetRow
) -> None:
    with sqlite3.connect(tmp_path / "state.db") as file:
        file.execute("UPDATE kept SET body = 'as it was'")
    store.state.change(one.instances["3"], phase="allocated")
    store.commit()

    written = "SELECT path FROM kept WHERE body <> 'as it was'"
    (path,) = sqlite3.connect(tmp_path / "state.db").execute(written).fetchone()
    assert json.loads(path) == ["scale_sets", one.key, "instances", "3"]
    assert store.commit() is False


def test_a_row_cannot_be_changed_in_place(one: ScaleSetRow, store: StateFile) -> None:
    tagged = store.state.change(one, model=one.model | {"tags": {"list": [3, {"a": 1}]}})
    changes: list[Callable[[], object]] = [
        lambda: setattr(tagged, "name", "other"),
        lambda: tagged.model.update(tags={}),
        lambda: tagged.model["tags"].pop("list"),
        lambda: tagged.model["tags"]["list"].append(4),
        lambda: tagged.model["tags"]["list"][1].setdefault("b", 2),
        lambda: setattr(tagged.instances["0"], "doom", "deleted"),
    ]
    before = json.dumps(tagged.model)
    for change in changes:
        with pytest.raises((TypeError, AttributeError)):
            change()
    assert json.dumps(tagged.model) == before


def test_a_change_of_an_older_version_keeps_what_changed_since(
    store: StateFile, one: ScaleSetRow
) -> None:
    store.state.change(one, etag=5)
    newest = store.state.change(one, version=7)

    assert (newest.etag, newest.version) == (5, 7)
    assert newest.instances is one.instances


def test_what_is_removed_is_gone_with_all_that_is_in_it(
    tmp_path: Path, store: StateFile, one: ScaleSetRow
) -> None:
    store.state.remove(one)
    store.commit()

    assert stored_rows(tmp_path) == EmulatorState().rows()
    recreated = put_scale_set(store.state, 0)
    store.commit()
    assert StateFile(tmp_path).state.scale_sets[recreated.key].instances == {}


def test_a_member_that_is_new_has_its_default(tmp_path: Path, store: StateFile) -> None:
    with sqlite3.connect(tmp_path / "state.db") as file:
        file.execute("UPDATE kept SET body = json_remove(body, '$.doom', '$.incarnation')")
        file.execute("UPDATE kept SET body = json_set(body, '$.was_there_once', 1)")

    assert stored_rows(tmp_path) == store.state.rows()


def test_a_folder_has_one_emulator_at_a_time(tmp_path: Path) -> None:
    with occupy(tmp_path), pytest.raises(StateUnreadable, match=f"process {os.getpid()}"):
        occupy(tmp_path)

    occupy(tmp_path).close()


def test_a_file_that_was_deleted_is_missed(tmp_path: Path, store: StateFile) -> None:
    store.check_there()
    (tmp_path / "state.db").rename(tmp_path / "elsewhere")
    with pytest.raises(StateUnreadable, match="was deleted or replaced"):
        store.check_there()

    StateFile(tmp_path)
    with pytest.raises(StateUnreadable, match="was deleted or replaced"):
        store.check_there()


def test_what_is_remembered_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    """Custom data is in it, and in that the token of a node."""
    before = os.umask(0o022)
    try:
        store = StateFile(tmp_path)
        store.state.change(store.state.globals, next_address=7)
        store.commit()
    finally:
        os.umask(before)

    modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.glob("state.db*")}
    assert len(modes) > 1, "SQLite's other files as well"
    assert set(modes.values()) == {0o600}


def test_what_cannot_be_read_is_refused(tmp_path: Path, store: StateFile) -> None:
    with sqlite3.connect(tmp_path / "state.db") as file:
        file.execute("UPDATE kept SET body = json_remove(body, '$.set_key')")
    with pytest.raises(StateUnreadable, match="older emulator"):
        StateFile(tmp_path)
    (other_folder := tmp_path / "other").mkdir()
    (other_folder / "state.db").write_text("what is this" * 100)
    with pytest.raises(StateUnreadable, match="cannot be read"):
        StateFile(other_folder)
    (tmp_path / "state.json").write_text("{}")
    with pytest.raises(StateUnreadable, match="Delete the folder"):
        StateFile(tmp_path)
