"""Messages travel unchanged, bad ones are refused by the name of the member at fault."""

import inspect
import json
from dataclasses import MISSING, fields, replace

import pytest
from hypothesis import given, settings

from tests.unit.contract.bounded import messages
from trainer import contract
from trainer.contract import (
    Committed,
    Directive,
    Head,
    Heartbeat,
    Message,
    NodePhase,
    StaleGeneration,
)

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
        again = kind.from_json(text)
        assert again.to_json() == text
        assert again == message or "NaN" in text

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


def test_a_fault_deep_inside_is_named_by_its_whole_path() -> None:
    beat = Heartbeat(
        epoch=1, seq=1, phase=NodePhase.READY, generation=0, step=0, free_port=1, committed=(AT_3,)
    )
    data = json.loads(beat.to_json())
    data["committed"][0]["step"] = "three"

    with pytest.raises(ValueError, match=r"committed\[0\]\.step: int is needed, not 'three'"):
        Heartbeat.from_dict(data)


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


def test_what_is_no_object_is_refused() -> None:
    with pytest.raises(ValueError, match="an object is needed"):
        Directive.from_json("[]")


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


AT_3 = Committed(
    path="checkpoints/step-00000003-x",
    step=3,
    consumed_samples=24,
    world_size=2,
    generation=3,
    kind="periodic",
    size=10,
    manifest_sha256="0" * 64,
    committed_at=1.5,
)


def _example(kind: type[Message]) -> dict[str, object]:
    """Return the simplest valid message of a kind, as parsed JSON."""
    found: list[Message] = []

    @settings(max_examples=1, derandomize=True, database=None)
    @given(messages(kind))
    def keep(message: Message) -> None:
        found.append(message)

    keep()
    return found[0].to_plain()
