"""What nodes may write is bounded in every member, and refused before it is kept."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.contract.bounded import unbounded
from tests.unit.contract.test_messages import AT_3
from trainer.contract import (
    BrokenCheckpoint,
    ConvertedBase,
    FileEntry,
    Head,
    Heartbeat,
    Manifest,
    Message,
    NodePhase,
    Registration,
    StepMetrics,
)

FROM_NODES: list[type[Message]] = [
    Heartbeat,
    Registration,
    Head,
    Manifest,
    StepMetrics,
    BrokenCheckpoint,
    ConvertedBase,
]
BEAT = Heartbeat(
    epoch=1,
    seq=1,
    phase=NodePhase.RUNNING,
    generation=1,
    step=1,
    free_port=1,
    committed=(AT_3,),
    metrics=(
        StepMetrics(
            step=1, loss=1.0, learning_rate=0.1, grad_norm=1.0, tokens=8, seconds=0.5, at=1.0
        ),
    ),
).to_plain()


@pytest.mark.parametrize("kind", FROM_NODES, ids=lambda kind: kind.__name__)
def test_every_member_that_a_node_writes_states_its_bounds(kind: type[Message]) -> None:
    assert unbounded(kind) == []


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        (("step",), 2**70, "not between 0 and 2147483647"),
        (("step",), -1, "not between"),
        (("free_port",), 65_536, "not between"),
        (("error",), "x" * 200_000, "200000 characters"),
        (("committed", 0, "path"), "checkpoints/../../other", "not of the form"),
        (("committed", 0, "path"), "checkpoints/step-1-a\0", "not of the form"),
        (("committed", 0, "kind"), "\ud800", "lone surrogate"),
        (("committed", 0, "committed_at"), 1e300, "not between"),
        (("committed", 0, "valid_loss"), float("nan"), "nan is not between"),
        (("metrics", 0, "seconds"), float("inf"), "inf is not between"),
        (("metrics", 0, "tokens"), 2**62, "not between"),
        (("metrics", 0, "loss"), 10**400, "not between"),
        (("metrics",), [{}] * 1001, "1001 members; at most 1000"),
    ],
)
def test_a_member_out_of_its_bounds_is_refused_by_name(
    path: tuple[Any, ...], value: object, why: str
) -> None:
    data = json.loads(json.dumps(BEAT))
    place = data
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value

    with pytest.raises(ValueError, match=f"{path[-1]}: .*{why}"):
        Heartbeat.from_json(json.dumps(data))


def test_a_loss_that_is_no_number_is_a_measurement() -> None:
    told = json.dumps(BEAT).replace('"loss": 1.0', '"loss": NaN')

    assert str(Heartbeat.from_json(told).metrics[0].loss) == "nan"


def test_a_message_that_names_a_member_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="names a member twice"):
        Head.from_json('{"generation": 1, "generation": 2}')


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_a_message_nested_too_deeply_is_refused_like_any_other(opening: str) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        Head.from_json(opening * 100_000)


def test_an_error_shows_no_more_of_a_value_than_is_cheap() -> None:
    with pytest.raises(ValueError, match="not list of 100000") as told:
        Head.from_dict([[]] * 100_000)
    assert len(str(told.value)) < 200


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/../b", "/a", "a/", "a//b", "a\\b", "a\nb", "a\0"]
)
def test_a_file_of_a_checkpoint_lies_in_its_folder(name: str) -> None:
    entry = FileEntry(name=name, size=1, etag="e", crc64nvme="0" * 16)

    with pytest.raises(ValueError, match="name: "):
        FileEntry.from_json(entry.to_json())


def test_a_file_of_any_other_name_is_taken() -> None:
    entry = FileEntry(name="Modell à 1.safetensors", size=1, etag="e", crc64nvme="0" * 16)

    assert FileEntry.from_json(entry.to_json()) == entry
    for name in ("..a", "adapter/model.safetensors"):
        entry = replace(entry, name=name)
        assert FileEntry.from_json(entry.to_json()) == entry
