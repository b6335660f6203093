"""The emulator's memory on disk."""

from pathlib import Path

from emulator.state import (
    Eviction,
    Instance,
    Operation,
    ResourceGroup,
    ScaleSet,
    State,
    load,
    save,
)


def test_all_of_the_state_comes_back(tmp_path: Path) -> None:
    instance = Instance("0", "vm", "token", "127.0.0.2", 1.0)
    instance.eviction = Eviction("E", 2.0, announced=True)
    model = {"location": "eastus", "sku": {"capacity": 1}, "properties": {}}
    scale_set = ScaleSet("s", "G", "Set", model, "", 1.0, "u", instances={"0": instance})
    group = ResourceGroup("s", "G", "eastus", {"a": "b"})
    operation = Operation("o", "put", "s", "eastus", scale_set.key, 1.0, 2.0)
    state = State(
        groups={group.key: group},
        scale_sets={scale_set.key: scale_set},
        operations={operation.id: operation},
        capacity={"eastus/size": 3},
        next_address=7,
    )

    save(state, tmp_path / "state.json")

    assert load(tmp_path / "state.json") == state
    assert [file.name for file in tmp_path.iterdir()] == ["state.json"]


def test_a_new_folder_holds_nothing(tmp_path: Path) -> None:
    assert load(tmp_path / "state.json") == State()
