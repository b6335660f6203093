"""What requests to train rest on: kept for half a minute, and never by a process that is deaf."""

from service.db.notices import Listener
from service.operations.facts import Facts


class Source:
    """Counts how often it is read."""

    def __init__(self) -> None:
        self.reads = 0

    async def read(self) -> str | None:
        self.reads += 1
        return f"read {self.reads}"


async def nothing() -> str | None:
    return None


def hearing() -> Listener:
    made = Listener("postgresql://nowhere")
    made.hears = True
    return made


async def test_what_was_read_lately_is_not_read_again_until_it_is_forgotten() -> None:
    facts, source = Facts(hearing()), Source()

    twice = [await facts.of("a", source.read) for _ in "ab"]
    forgotten = facts.forget("a")

    assert (twice, forgotten) == (["read 1", "read 1"], True)
    assert await facts.of("a", source.read) == "read 2"


async def test_what_is_not_there_is_looked_for_each_time() -> None:
    facts, source = Facts(hearing()), Source()

    assert await facts.of("a", nothing) is None
    assert await facts.of("a", source.read) == "read 1"


async def test_once_the_connection_for_notices_is_lost_all_is_read_again() -> None:
    listener, source = hearing(), Source()
    facts = Facts(listener)
    await facts.of("a", source.read)
    listener.hears = False
    listener.wake(*listener._waiting)  # as `Listener.run` does when it is lost

    assert [await facts.of("a", source.read) for _ in "ab"] == ["read 2", "read 3"]
