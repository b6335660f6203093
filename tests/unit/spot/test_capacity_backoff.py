"""Offerings without capacity are left alone for a while, by every job of that size or more."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from service.domain.spot.capacity_backoff import (
    FIRST_BACKOFF,
    LONGEST_BACKOFF,
    Shortage,
    backoff_after,
    record_refusal,
)
from tests.world import SPOT

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def shortage_after(
    before: Shortage | None, nodes: int, requested_at: datetime, now: datetime
) -> Shortage:
    """Return the shortage that is recorded once Azure has refused ``nodes`` machines."""
    return record_refusal(before, SPOT, nodes, "AllocationFailed", requested_at, now)


def test_each_further_refusal_doubles_the_time_up_to_a_cap() -> None:
    first = shortage_after(None, 1, NOW, NOW)
    second = shortage_after(first, 1, NOW + FIRST_BACKOFF, NOW + FIRST_BACKOFF)

    assert first.ends_at == NOW + FIRST_BACKOFF
    assert (second.since, second.in_a_row) == (NOW, 2)
    assert second.ends_at == NOW + FIRST_BACKOFF + 2 * FIRST_BACKOFF
    assert backoff_after(60) == LONGEST_BACKOFF


@dataclass
class Sky:
    """A place that refuses everything, and what jobs of all sizes do there; an oracle beside it.

    No two things happen in the same microsecond.
    """

    now: datetime = NOW
    known: Shortage | None = None
    waiting: list[tuple[int, datetime]] = field(default_factory=list)  # for an answer
    finds_out: datetime | None = None  # when the one has asked that does
    count: int = 0  # refusals that have begun a pause
    sizes: list[int] = field(default_factory=list)  # asked for or refused since this one began

    def passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds, microseconds=1)

    def asks(self, nodes: int) -> None:
        """Let a job ask for machines; check the answer against all earlier requests."""
        lasts = self.known is not None and self.now < self.known.ends_at
        may = not lasts or nodes < min(self.sizes)
        assert may is not (self.known is not None and self.known.covers(self.now, nodes))
        if not may:
            return
        self.waiting.append((nodes, self.now))
        if self.known is not None:
            before, self.known = self.known, self.known.with_probe(self.now, nodes)
            assert not lasts or before.ends_at == self.known.ends_at
            self.finds_out = self.finds_out if lasts else self.now
            self.sizes = [*(self.sizes if lasts else []), nodes]

    def answers(self, which: int) -> None:
        """Azure has no room for one of those who have asked."""
        if not self.waiting:
            return
        nodes, requested_at = self.waiting.pop(which % len(self.waiting))
        before, self.known = self.known, shortage_after(self.known, nodes, requested_at, self.now)
        lasts = before is not None and self.now < before.ends_at
        self.sizes = [*(self.sizes if lasts else []), nodes]
        if not lasts or requested_at == self.finds_out:
            self.count, self.finds_out = self.count + 1, None
            assert self.known.ends_at == self.now + backoff_after(self.count)
        else:
            assert before is not None
            assert self.known == replace(before, nodes=self.known.nodes)
        assert (self.known.in_a_row, self.known.nodes) == (self.count, min(self.sizes))


@settings(max_examples=150)
@given(
    st.lists(
        st.tuples(st.integers(0, 400), st.sampled_from(["asks", "answers"]), st.integers(1, 8)),
        max_size=60,
    )
)
def test_in_each_pause_fewer_than_anybody_asked_for_may_be_asked_for_and_by_one_job(
    happens: list[tuple[int, str, int]],
) -> None:
    """Whoever asks and is answered when: and only who asked at the end begins another pause."""
    region = Sky()
    for seconds, event, number in happens:
        region.passes(seconds)
        if event == "asks":
            region.asks(number)
        else:
            region.answers(number)

    assert (region.known.in_a_row if region.known else 0) == region.count
