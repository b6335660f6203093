"""How long a run may take its time, by a clock that the test moves."""

from dataclasses import dataclass

import pytest

from service.settings import Settings
from trainer.supervisor.clock import NodeClock, NodeLimits, StopDeadline
from trainer.supervisor.control.stop_requests import StopRequest, StopRequests


@dataclass
class Time:
    """A monotonic clock that stands still until it is moved."""

    at: float = 1000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def time() -> Time:
    """The time."""
    return Time()


@pytest.fixture
def wishes(time: Time) -> StopRequests:
    """Nothing is wished yet; the limits are those of production."""
    return StopRequests(NodeLimits(), NodeClock(now=time, monotonic=time))


def test_a_trainer_that_nobody_asked_may_go_on_for_ever(wishes: StopRequests, time: Time) -> None:
    time.at += 1e6

    assert not wishes.must_be_killed


def test_a_trainer_that_was_asked_to_save_has_two_minutes(wishes: StopRequests, time: Time) -> None:
    wishes.request(StopRequest.SAVE)
    time.at += 119
    assert not wishes.must_be_killed
    time.at += 1

    assert wishes.must_be_killed


def test_before_an_eviction_it_is_killed_five_seconds_ahead(
    wishes: StopRequests, time: Time
) -> None:
    wishes.set_machine_deadline(30.0)
    wishes.request(StopRequest.SAVE)
    time.at += 24.9
    assert not wishes.must_be_killed
    time.at += 0.1

    assert wishes.must_be_killed


def test_a_notice_shortens_a_save_that_is_under_way(wishes: StopRequests, time: Time) -> None:
    wishes.request(StopRequest.SAVE)
    time.at += 50
    wishes.set_machine_deadline(30.0)
    time.at += 25

    assert wishes.must_be_killed


@pytest.mark.parametrize("wish", [StopRequest.KILL, StopRequest.ABANDON])
async def test_a_stronger_wish_implies_the_weaker_ones(
    wishes: StopRequests, wish: StopRequest
) -> None:
    wishes.request(wish)
    wishes.request(StopRequest.SAVE)

    assert wishes.must_be_killed
    assert wishes.strongest is wish
    await wishes.wait_for(StopRequest.SAVE)


def test_peers_are_awaited_for_a_minute(wishes: StopRequests, time: Time) -> None:
    wishes.trainer_ended(ended_well=True)
    since = time.at
    time.at += 59
    assert not wishes.is_peer_time_over(since)
    time.at += 1

    assert wishes.is_peer_time_over(since)


def test_before_an_eviction_peers_are_awaited_until_three_seconds_ahead(
    wishes: StopRequests, time: Time
) -> None:
    wishes.set_machine_deadline(90.0)
    wishes.trainer_ended(ended_well=True)
    since = time.at
    time.at += 86.9
    assert not wishes.is_peer_time_over(since)
    time.at += 0.1

    assert wishes.is_peer_time_over(since)


def test_after_a_kill_peers_have_the_time_of_a_restart(wishes: StopRequests, time: Time) -> None:
    wishes.trainer_ended(ended_well=True)
    since = time.at
    wishes.request(StopRequest.KILL)
    assert not wishes.is_peer_time_over(since)
    time.at += 10

    assert wishes.is_peer_time_over(since)


def test_peers_of_a_trainer_that_failed_have_the_time_of_a_restart(
    wishes: StopRequests, time: Time
) -> None:
    wishes.trainer_ended(ended_well=False)
    time.at += 10

    assert wishes.is_peer_time_over(time.at - 10)


def test_after_a_kill_uploads_end_before_the_service_runs_out_of_patience(
    wishes: StopRequests, time: Time
) -> None:
    assert NodeLimits().uploads_after_kill + 10 < Settings.model_fields["settle_seconds"].default
    wishes.trainer_ended(ended_well=False)
    time.at += 44.9
    assert not wishes.is_upload_time_over
    time.at += 0.1

    assert wishes.is_upload_time_over


def test_uploads_end_with_the_machine(wishes: StopRequests, time: Time) -> None:
    wishes.set_machine_deadline(30.0)
    wishes.trainer_ended(ended_well=True)
    time.at += 26
    assert not wishes.is_upload_time_over
    time.at += 1

    assert wishes.is_upload_time_over


def test_stop_by_counts_from_when_the_request_was_sent() -> None:
    stop_by = StopDeadline()
    stop_by.extend(sent=100.0, now=5e9, stop_by=5e9 + 60)

    assert not stop_by.has_passed(159.9)
    assert stop_by.has_passed(160.0)


def test_an_answer_to_an_older_request_does_not_move_stop_by() -> None:
    stop_by = StopDeadline()
    stop_by.extend(sent=100.0, now=0.0, stop_by=60.0)
    stop_by.extend(sent=90.0, now=0.0, stop_by=6000.0)

    assert stop_by.has_passed(160.0)


def test_a_budget_that_shrinks_brings_stop_by_nearer() -> None:
    stop_by = StopDeadline()
    stop_by.extend(sent=100.0, now=0.0, stop_by=600.0)
    stop_by.extend(sent=110.0, now=10.0, stop_by=20.0)

    assert stop_by.has_passed(120.0)
