"""What was read is kept: until there is news, for some seconds, while notices are heard."""

import pytest

from service.db.notices import Listener
from service.operations.kept import Kept

TOPIC = "job:1"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def listener() -> Listener:
    made = Listener("postgresql://nowhere")
    made.hears = True
    return made


@pytest.fixture
def kept(listener: Listener, clock: Clock) -> Kept[str]:
    return Kept[str](listener, seconds=5.0, most=2, clock=clock)


def read(kept: Kept[str], key: str, *topics: str) -> None:
    with kept.reading(key, *topics) as keep:
        keep(f"of {key}")


def test_it_is_there_until_its_seconds_are_over(kept: Kept[str], clock: Clock) -> None:
    read(kept, "a", TOPIC)
    clock.now = 4.9
    at_first = kept.find("a")
    clock.now = 5.0

    assert (at_first, kept.find("a")) == ("of a", None)


def test_news_of_any_of_its_topics_end_it_and_no_others(
    kept: Kept[str], listener: Listener
) -> None:
    read(kept, "a", TOPIC, "keys")
    read(kept, "b", "job:2")
    listener.wake("keys")

    assert (kept.find("a"), kept.find("b")) == (None, "of b")


def test_news_while_it_is_read_leave_nothing_to_keep(kept: Kept[str], listener: Listener) -> None:
    with kept.reading("a", TOPIC) as keep:
        keep("old")
        listener.wake(TOPIC)

    assert kept.find("a") is None


def test_nothing_is_kept_while_nothing_is_heard(kept: Kept[str], listener: Listener) -> None:
    listener.hears = False
    read(kept, "a", TOPIC)

    assert kept.find("a") is None


def test_a_reading_that_fails_keeps_nothing(kept: Kept[str]) -> None:
    with pytest.raises(ValueError, match="no"), kept.reading("a", TOPIC):
        raise ValueError("no")

    assert kept.find("a") is None


def test_the_oldest_goes_when_there_are_too_many(kept: Kept[str]) -> None:
    for key in "abc":
        read(kept, key, TOPIC)

    assert [kept.find(key) for key in "abc"] == [None, "of b", "of c"]


def test_nobody_waits_for_what_is_not_kept_any_more(
    kept: Kept[str], listener: Listener, clock: Clock
) -> None:
    for key in "abab":
        read(kept, key, TOPIC, key)
    clock.now = 5.0
    read(kept, "c", "c")

    assert set(listener._waiting) == {"c"}


def test_what_turned_out_to_be_otherwise_is_forgotten(kept: Kept[str], listener: Listener) -> None:
    read(kept, "a", TOPIC)

    assert (kept.forget("a"), kept.forget("a")) == (True, False)
    assert kept.find("a") is None
    assert not listener._waiting
