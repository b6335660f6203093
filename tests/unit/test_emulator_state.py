"""The emulator's memory on disk."""

import copy
import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from emulator.state import Eviction, Instance, Operation, ResourceGroup, ScaleSet, State
from emulator.store import StateUnreadable, Store, occupy


def scale_set(instances: int = 1) -> ScaleSet:
    model = {"location": "eastus", "sku": {"capacity": instances}, "properties": {}}
    made = ScaleSet("s", "G", "Set", model, "", 1.0, "u")
    for number in range(instances):
        made.instances[str(number)] = Instance(str(number), "vm", "token", "127.0.0.2", 1.0)
    return made


def kept(folder: Path) -> State:
    return Store(folder).state


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path)
    one = scale_set(12)
    made.state.scale_sets[one.key] = one
    made.commit()
    return made


def test_all_of_the_state_comes_back(tmp_path: Path) -> None:
    store = Store(tmp_path)
    one = scale_set()
    one.instances["0"].eviction = Eviction("E", 2.0, announced=True)
    group = ResourceGroup("s", "G", "eastus", {"a": "b"})
    operation = Operation("o", "put", "s", "eastus", one.key, 1.0, 2.0)
    store.state.groups[group.key] = group
    store.state.scale_sets[one.key] = one
    store.state.operations[operation.id] = operation
    store.state.capacity["eastus/size"] = 3
    store.state.next_address = 7
    store.commit()

    assert kept(tmp_path) == store.state
    assert isinstance(kept(tmp_path).scale_sets[one.key].instances["0"].eviction, Eviction)


def test_a_new_folder_holds_nothing(tmp_path: Path) -> None:
    assert kept(tmp_path / "new") == State()


def test_what_is_not_committed_is_forgotten_whole(tmp_path: Path, store: Store) -> None:
    before = copy.deepcopy(kept(tmp_path))
    (one,) = store.state.scale_sets.values()
    one.capacity = 3
    one.instances["0"].doom = "evicted"
    del one.instances["1"]
    store.state.next_address += 1

    assert kept(tmp_path) == before


def test_only_the_rows_that_changed_are_written(tmp_path: Path, store: Store) -> None:
    (one,) = store.state.scale_sets.values()
    with sqlite3.connect(tmp_path / "state.db") as file:
        file.execute("UPDATE kept SET body = 'as it was'")
    one.instances["3"].phase = "allocated"
    store.commit()

    written = "SELECT path FROM kept WHERE body <> 'as it was'"
    (path,) = sqlite3.connect(tmp_path / "state.db").execute(written).fetchone()
    assert json.loads(path) == ["scale_sets", one.key, "instances", "3"]
    assert store.commit() is False


def test_every_way_to_change_a_part_is_seen(tmp_path: Path, store: Store) -> None:
    (one,) = store.state.scale_sets.values()
    one.model["tags"] = {"a": "b", "list": [3, 1, 2]}
    changes: list[Callable[[], object]] = [
        lambda: one.model["sku"].update(name="size"),
        lambda: one.model["tags"].pop("a"),
        lambda: one.model["tags"].setdefault("c", {}).update(d=1),
        lambda: one.model["tags"]["list"].append([4]),
        lambda: one.model["tags"]["list"][-1].insert(0, 5),
        lambda: one.model["tags"]["list"].remove(3),
        lambda: one.model["tags"]["list"].extend([{"e": 6}]),
        lambda: one.model["tags"]["list"][-1].pop("e"),
        one.instances.popitem,
        lambda: one.instances.pop("4"),
        lambda: setattr(one.instances["0"], "eviction", Eviction("E", 2.0, announced=True)),
        lambda: setattr(one.instances["0"].eviction, "acknowledged", True),
        lambda: store.state.capacity.setdefault("eastus/size", 3),
    ]
    for change in changes:
        store.commit()
        change()
        assert store.commit()
        assert kept(tmp_path) == store.state


def test_rows_come_back_in_the_order_in_which_they_were_put(tmp_path: Path, store: Store) -> None:
    (one,) = store.state.scale_sets.values()
    first, last = one.instances.pop("0"), one.instances["11"]
    for number in ("12", "13"):
        one.instances[number] = copy.deepcopy(last)
    one.instances["0"] = first
    one.instances["12"].doom = "deleted"
    store.commit()
    one.instances["5"].doom = "deleted"
    store.commit()

    (same,) = kept(tmp_path).scale_sets.values()
    assert list(same.instances) == [str(n) for n in (*range(1, 14), 0)]


def test_a_changed_copy_counts_only_when_it_is_put(tmp_path: Path, store: Store) -> None:
    (one,) = store.state.scale_sets.values()
    other = copy.deepcopy(one)
    other.capacity = 40
    del other.instances["2"]
    other.instances["3"].doom = "deleted"
    store.commit()
    assert kept(tmp_path).scale_sets[one.key] == one

    store.state.scale_sets[one.key] = other
    store.commit()
    assert kept(tmp_path).scale_sets[one.key] == other


def test_what_is_deleted_is_gone_with_all_that_is_in_it(tmp_path: Path, store: Store) -> None:
    store.state.scale_sets.clear()
    store.commit()

    assert kept(tmp_path) == State()
    again = scale_set(0)
    store.state.scale_sets[again.key] = again
    store.commit()
    assert kept(tmp_path).scale_sets[again.key].instances == {}


def test_a_member_that_is_new_has_its_default(tmp_path: Path, store: Store) -> None:
    with sqlite3.connect(tmp_path / "state.db") as file:
        file.execute("UPDATE kept SET body = json_remove(body, '$.doom', '$.incarnation')")
        file.execute("UPDATE kept SET body = json_set(body, '$.was_there_once', 1)")

    assert kept(tmp_path) == store.state


def test_a_folder_has_one_emulator_at_a_time(tmp_path: Path) -> None:
    with occupy(tmp_path), pytest.raises(StateUnreadable, match=f"process {os.getpid()}"):
        occupy(tmp_path)

    occupy(tmp_path).close()


def test_a_file_that_was_deleted_is_missed(tmp_path: Path, store: Store) -> None:
    store.check_there()
    (tmp_path / "state.db").rename(tmp_path / "elsewhere")
    with pytest.raises(StateUnreadable, match="was deleted or replaced"):
        store.check_there()

    Store(tmp_path)
    with pytest.raises(StateUnreadable, match="was deleted or replaced"):
        store.check_there()


def test_the_file_of_an_older_emulator_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text("{}")

    with pytest.raises(StateUnreadable, match="Delete the folder"):
        Store(tmp_path)


def test_a_file_that_is_no_state_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_text("what is this" * 100)

    with pytest.raises(StateUnreadable, match="cannot be read"):
        Store(tmp_path)


def test_what_is_remembered_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    """Custom data is in it, and in that the token of a node."""
    before = os.umask(0o022)
    try:
        store = Store(tmp_path)
        store.state.next_address = 7
        store.commit()
    finally:
        os.umask(before)

    modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.glob("state.db*")}
    assert len(modes) > 1, "SQLite's other files as well"
    assert set(modes.values()) == {0o600}
