"""How long a run may take its time, by a clock that the test moves."""

from collections.abc import Callable
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
    """Return a clock that stands still until it is moved."""
    return Time()


@pytest.fixture
def requests(time: Time) -> StopRequests:
    """Nothing is requested yet; the limits are those of production."""
    return StopRequests(NodeLimits(), NodeClock(now=time, monotonic=time))


def killed(requests: StopRequests, _: float) -> bool:
    """Return whether the trainer must be killed."""
    return requests.must_be_killed


def peers(requests: StopRequests, since: float) -> bool:
    """Return whether the wait for peers since then is over."""
    return requests.is_peer_time_over(since)


def uploads(requests: StopRequests, _: float) -> bool:
    """Return whether uploads must end."""
    return requests.is_upload_time_over


SAVE, KILL = StopRequest.SAVE, StopRequest.KILL


@pytest.mark.parametrize(
    ("notice", "ended_well", "stop_request", "is_over", "seconds"),
    [
        pytest.param(None, None, SAVE, killed, 120.0, id="two minutes for a save"),
        pytest.param(30.0, None, SAVE, killed, 25.0, id="kill 5 s before an eviction"),
        pytest.param(None, True, None, peers, 60.0, id="a minute for peers"),
        pytest.param(90.0, True, None, peers, 87.0, id="peers until 3 s before an eviction"),
        pytest.param(None, True, KILL, peers, 10.0, id="a restart for peers after a kill"),
        pytest.param(None, False, None, peers, 10.0, id="a restart for peers after a failure"),
        pytest.param(None, False, None, uploads, 45.0, id="45 s for uploads after a failure"),
        pytest.param(30.0, True, None, uploads, 27.0, id="uploads until 3 s before an eviction"),
    ],
)
def test_a_limit_is_reached_after_its_seconds(
    requests: StopRequests,
    time: Time,
    notice: float | None,
    ended_well: bool | None,
    stop_request: StopRequest | None,
    is_over: Callable[[StopRequests, float], bool],
    seconds: float,
) -> None:
    since = time.at
    if notice is not None:
        requests.set_machine_deadline(notice)
    if ended_well is not None:
        requests.record_trainer_end(ended_well=ended_well)
    if stop_request is not None:
        requests.request(stop_request)
    time.at = since + seconds - 0.125
    before = is_over(requests, since)
    time.at = since + seconds

    assert not before
    assert is_over(requests, since)


def test_uploads_after_a_kill_end_before_the_service_runs_out_of_patience() -> None:
    assert NodeLimits().uploads_after_kill + 10 < Settings.model_fields["settle_seconds"].default


def test_a_notice_shortens_a_save_that_is_under_way(requests: StopRequests, time: Time) -> None:
    requests.request(SAVE)
    time.at += 50
    requests.set_machine_deadline(30.0)
    time.at += 25

    assert requests.must_be_killed


@pytest.mark.parametrize("stop", [StopRequest.KILL, StopRequest.ABANDON])
async def test_a_stronger_request_implies_the_weaker_ones(
    requests: StopRequests, stop: StopRequest
) -> None:
    requests.request(stop)
    requests.request(StopRequest.SAVE)

    assert requests.must_be_killed
    assert requests.strongest is stop
    await requests.wait_for(StopRequest.SAVE)


@pytest.mark.parametrize(
    ("answers", "passes_at"),  # sent, now, stop_by
    [
        pytest.param([(100.0, 5e9, 5e9 + 60)], 160.0, id="counts from when it was sent"),
        pytest.param([(100.0, 0.0, 60.0), (90.0, 0.0, 6000.0)], 160.0, id="older answers"),
        pytest.param([(100.0, 0.0, 600.0), (110.0, 10.0, 20.0)], 120.0, id="a smaller budget"),
    ],
)
def test_stop_by_follows_the_answer_to_the_newest_request(
    answers: list[tuple[float, float, float]], passes_at: float
) -> None:
    deadline = StopDeadline()
    for sent_at, now, stop_by in answers:
        deadline.extend(sent=sent_at, now=now, stop_by=stop_by)

    assert not deadline.has_passed(passes_at - 0.125)
    assert deadline.has_passed(passes_at)
