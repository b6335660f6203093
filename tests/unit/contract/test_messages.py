"""Messages travel unchanged; a member that is wrong or out of bounds is refused by its name."""

import inspect
import json
from dataclasses import MISSING, fields, replace
from typing import Any

import pytest
from hypothesis import given, settings

from tests.nodes.scripted_node import committed, metrics
from tests.unit.contract.bounded import messages, unbounded
from trainer import contract
from trainer.contract import (
    BrokenCheckpoint,
    Committed,
    ConvertedBase,
    Directive,
    FileEntry,
    Head,
    Heartbeat,
    Manifest,
    Message,
    NodePhase,
    Registration,
    StaleGeneration,
    StepMetrics,
)

AT_3 = committed(3, 3)
MESSAGES = [
    kind
    for kind in vars(contract).values()
    if inspect.isclass(kind) and issubclass(kind, Message) and kind is not Message
]


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_a_message_arrives_as_it_was_sent(kind: type[Message]) -> None:
    @settings(max_examples=15, derandomize=True, database=None)
    @given(messages(kind))
    def there_and_back(message: Message) -> None:
        text = message.to_json()
        parsed = kind.from_json(text)
        assert parsed.to_json() == text
        assert parsed == message or "NaN" in text

    there_and_back()


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_each_missing_member_is_named(kind: type[Message]) -> None:
    data = _example(kind)
    needed = [f.name for f in fields(kind) if f.default is f.default_factory is MISSING]  # type: ignore[arg-type]

    for name in needed:
        with pytest.raises(ValueError, match=rf"\b{name}: missing"):
            kind.from_dict({k: v for k, v in data.items() if k != name})


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_each_member_of_a_wrong_type_is_named(kind: type[Message]) -> None:
    data = _example(kind)

    for name in data:
        with pytest.raises(ValueError, match=rf"\b{name}\b"):
            kind.from_dict(data | {name: [object]})


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_an_unknown_member_is_named(kind: type[Message]) -> None:
    with pytest.raises(ValueError, match="unknown member 'colour'"):
        kind.from_dict(_example(kind) | {"colour": "red"})


@pytest.mark.parametrize(("name", "value"), [("seq", True), ("seq", 1.0), ("stop_by", "1")])
def test_numbers_are_not_guessed(name: str, value: object) -> None:
    data = {"seq": 1, "kind": "stop", "now": 1.0, "stop_by": 2.0} | {name: value}

    with pytest.raises(ValueError, match=name):
        Directive.from_dict(data)


def test_a_whole_number_stands_for_a_time_too() -> None:
    directive = Directive.from_dict({"seq": 1, "kind": "stop", "now": 1, "stop_by": 2})

    assert directive.stop_by == 2.0


def test_an_unknown_phase_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match=r"kind: 'jump' is none of start, checkpoint_and_stop"):
        Directive.from_dict({"seq": 1, "kind": "jump", "now": 1, "stop_by": 2})


def test_a_reader_of_before_is_told_of_later_members_only_where_they_say_something() -> None:
    best = replace(AT_3, valid_loss=0.5)

    assert not {"valid_loss", "milestone"} & set(AT_3.to_plain())
    assert set(best.to_plain()) - set(AT_3.to_plain()) == {"valid_loss"}
    assert Committed.from_json(best.to_json()) == best


# --- HEAD ----------------------------------------------------------------------------------------


def test_head_taken_by_a_newer_generation_refuses_the_older_one() -> None:
    head = Head(generation=3, checkpoints=(AT_3,)).fenced(4)

    with pytest.raises(StaleGeneration, match="4's, not 3's"):
        head.with_checkpoint(replace(AT_3, step=4))
    with pytest.raises(StaleGeneration, match="4's, not 3's"):
        head.with_model(replace(AT_3, kind="final"))


def test_head_is_not_given_back_to_an_older_generation() -> None:
    with pytest.raises(StaleGeneration, match="generation 2 came after 3"):
        Head(generation=3).fenced(2)


def _example(kind: type[Message]) -> dict[str, object]:
    """Return the simplest valid message of a kind, as parsed JSON."""
    examples: list[Message] = []

    @settings(max_examples=1, derandomize=True, database=None)
    @given(messages(kind))
    def keep(message: Message) -> None:
        examples.append(message)

    keep()
    return examples[0].to_plain()


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
    metrics=(metrics(1, loss=1.0),),
).to_plain()


@pytest.mark.parametrize("kind", FROM_NODES, ids=lambda kind: kind.__name__)
def test_every_member_that_a_node_writes_states_its_bounds(kind: type[Message]) -> None:
    assert unbounded(kind) == []


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        (("step",), 2**70, "not between 0 and 2147483647"),
        (("committed", 0, "step"), "three", r"int is needed, not 'three'"),
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
    path: tuple[Any, ...], value: object, reason: str
) -> None:
    data = json.loads(json.dumps(BEAT))
    target = data
    for key in path[:-1]:
        target = target[key]
    member = ".".join(map(str, path)).replace(".0", r"\[0\]")
    target[path[-1]] = value

    with pytest.raises(ValueError, match=rf"{member}: .*{reason}"):
        Heartbeat.from_json(json.dumps(data))


def test_a_message_that_names_a_member_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="names a member twice"):
        Head.from_json('{"generation": 1, "generation": 2}')


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_a_message_nested_too_deeply_is_refused_like_any_other(opening: str) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        Head.from_json(opening * 100_000)


def test_an_error_shows_no_more_of_a_value_than_is_cheap() -> None:
    with pytest.raises(ValueError, match="not list of 100000") as raised:
        Head.from_dict([[]] * 100_000)
    assert len(str(raised.value)) < 200


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
