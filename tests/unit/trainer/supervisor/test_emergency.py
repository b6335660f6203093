"""What a machine does with the seconds that Azure leaves it."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.nodes.supervised import ALONE
from trainer.rundir import AFTER_STEP, RankResult, RunDir, write_atomically
from trainer.supervisor.clock import NodeClock, NodeLimits
from trainer.supervisor.control.launch import NodeWorld
from trainer.supervisor.control.stop_requests import StopRequest, StopRequests
from trainer.supervisor.control.stopping import StepTimer, StopController
from trainer.supervisor.machine.memory_files import MemoryFolder
from trainer.supervisor.report.heartbeat_reports import HeartbeatReports
from trainer.supervisor.upload.eviction_plan import (
    COMMIT_SECONDS,
    EvictionChoice,
    EvictionOutlook,
    decide_on_eviction,
    seconds_to_save,
    uncapped_rate,
    unsent_bytes,
)

GB = 10**9
LORA = EvictionOutlook(
    seconds_left=27.0, step=2.0, micro_steps=4, size=2 * GB, pending=0, rate=2.0 * GB
)
ORDER = (EvictionChoice.RELY, EvictionChoice.SAVE_NOW, EvictionChoice.FINISH_STEP)
spans = st.floats(min_value=0.01, max_value=1e4)
sizes = st.integers(min_value=0, max_value=10**13)
outlooks = st.builds(
    EvictionOutlook,
    seconds_left=spans,
    step=spans,
    micro_steps=st.integers(1, 64),
    size=sizes,
    pending=sizes,
    rate=st.floats(min_value=1e3, max_value=1e11),
)


@pytest.mark.parametrize(
    ("outlook", "choice"),
    [
        (LORA, EvictionChoice.FINISH_STEP),
        (replace(LORA, step=30.0, micro_steps=16), EvictionChoice.SAVE_NOW),
        (replace(LORA, size=98 * GB), EvictionChoice.RELY),  # all of a 7B model: never in 30 s
        (replace(LORA, pending=60 * GB), EvictionChoice.RELY),
        (replace(LORA, seconds_left=2.5), EvictionChoice.RELY),
        (replace(LORA, rate=None), EvictionChoice.SAVE_NOW),
        (replace(LORA, step=None), EvictionChoice.SAVE_NOW),
    ],
)
def test_a_save_is_made_if_it_will_be_whole_in_time(
    outlook: EvictionOutlook, choice: EvictionChoice
) -> None:
    assert decide_on_eviction(outlook).choice is choice


def test_the_time_for_a_save_is_boundary_and_wire_and_commit() -> None:
    assert seconds_to_save(LORA) == pytest.approx(1.2 * (0.5 + 1.0) + COMMIT_SECONDS)


@given(outlooks, spans)
def test_more_time_never_saves_less(outlook: EvictionOutlook, extra: float) -> None:
    longer = replace(outlook, seconds_left=outlook.seconds_left + extra)

    assert ORDER.index(decide_on_eviction(longer).choice) >= ORDER.index(
        decide_on_eviction(outlook).choice
    )


@given(outlooks)
def test_what_is_chosen_fits_into_the_time(outlook: EvictionOutlook) -> None:
    verdict = decide_on_eviction(outlook)

    assert outlook.step is not None
    assert verdict.needed_seconds is not None
    after = outlook.step if verdict.choice is EvictionChoice.FINISH_STEP else 0.0
    assert (
        verdict.choice is EvictionChoice.RELY
        or verdict.needed_seconds + after <= outlook.seconds_left
    )


def test_an_upload_that_its_cap_held_back_says_that_the_wire_has_more() -> None:
    assert uncapped_rate(0.85 * GB, cap=0.9 * GB) == pytest.approx(1.8 * GB)
    assert uncapped_rate(0.2 * GB, cap=0.9 * GB) == 0.2 * GB
    assert uncapped_rate(None, cap=0.9 * GB) is None


def test_the_time_of_a_step_is_that_of_the_last_few() -> None:
    tempo = StepTimer()
    tempo.record_step(10, 100.0)
    unknown = tempo.seconds
    for n in range(1, 30):
        tempo.record_step(10 + n, 100.0 + 3.0 * n)
        tempo.record_step(10 + n, 101.0 + 3.0 * n)  # heard of again: it is no step

    assert unknown is None
    assert tempo.seconds == pytest.approx(3.0)


def test_of_a_save_that_is_being_sent_only_the_rest_is_waited_for() -> None:
    assert unsent_bytes([10 * GB, 2 * GB], sent=7.0 * GB) == 5 * GB
    assert unsent_bytes([10 * GB, 2 * GB], sent=70.0 * GB) == 2 * GB
    assert unsent_bytes([], sent=7.0) == 0


# --- what the trainer is asked -------------------------------------------------------------------

NOW = ""
GENERATION = replace(ALONE, number=2, processes_per_node=2)


@dataclass
class Wire:
    """Of a machine that has uploaded a save before."""

    pending_bytes: int = 0
    rate: float | None = 2.0 * GB


@dataclass
class Machine:
    """Its clock stands still until it is moved."""

    folder: RunDir
    at: float = 1000.0

    def __post_init__(self) -> None:
        """Set up a trainer of generation 2, started from the state after step 10."""
        clock = NodeClock(now=self.time, monotonic=self.time)
        self.reports, self.wire = HeartbeatReports(), Wire()
        self.requests = StopRequests(NodeLimits(), clock)
        self.stopping = StopController(
            world=NodeWorld(
                generation=GENERATION,
                member=GENERATION.members[0],
                folder=self.folder,
                logs=self.folder.root / "logs",
            ),
            requests=self.requests,
            traffic=self.wire,
            memory=MemoryFolder(self.folder.root / "memory"),
            reports=self.reports,
            limits=NodeLimits(),
            clock=clock,
        )
        self.folder.prepare_stop_flag()
        self.reports.begin_run(10)
        self.stopping.record_step()

    def time(self) -> float:
        """Now."""
        return self.at

    def comes_to(self, step: int, after: float) -> None:
        """Record that the trainer has loaded or finished ``step``, ``after`` seconds later."""
        self.at += after
        self.reports.record_step(step)
        self.stopping.record_step()

    def trains(self, step_seconds: float) -> None:
        """Load for 300 seconds, then train for three steps."""
        self.comes_to(10, 300.0)
        for step in (11, 12, 13):
            self.comes_to(step, step_seconds)

    def ends(self) -> None:
        """Every rank leaves its result."""
        for rank in self.stopping.world.ranks:
            result = RankResult(how="finished", step=13)
            write_atomically(self.folder.result(rank), result.to_json())

    @property
    def flag(self) -> str | None:
        """What the trainer finds; None: nothing was asked of it."""
        return self.folder.stop.read_text() if self.folder.stop.exists() else None


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """With the limits of production."""
    return Machine(RunDir(tmp_path))


@pytest.mark.parametrize(
    ("step_seconds", "expected"),
    [
        pytest.param(2.0, AFTER_STEP, id="short steps; what loading took is none of them"),
        pytest.param(100.0, NOW, id="long steps"),
        pytest.param(None, NOW, id="no step was measured"),
    ],
)
def test_a_machine_that_stays_ends_its_step_first_if_that_is_short(
    machine: Machine, step_seconds: float | None, expected: str
) -> None:
    machine.trains(step_seconds) if step_seconds else machine.comes_to(11, 300.0)
    machine.stopping.request_save()

    assert machine.flag == expected
    assert machine.requests.strongest is StopRequest.SAVE
    assert machine.reports.next_payload().troubles == ()


@pytest.mark.parametrize(("seconds", "expected"), [(60.0, AFTER_STEP), (25.0, NOW)])
def test_a_stop_that_was_in_no_hurry_is_in_one_once_the_machine_is_to_go(
    machine: Machine, seconds: float, expected: str
) -> None:
    machine.trains(20.0)
    machine.stopping.request_save()
    machine.stopping.set_machine_deadline(seconds)

    assert machine.flag == expected
    assert machine.requests.strongest is StopRequest.SAVE


def test_a_notice_before_any_stop_asks_nothing_by_itself(machine: Machine) -> None:
    machine.trains(2.0)
    machine.stopping.set_machine_deadline(30.0)

    assert machine.flag is None


def test_before_its_first_own_step_a_trainer_has_nothing_to_save(machine: Machine) -> None:
    machine.comes_to(10, 300.0)
    machine.stopping.request_save()

    assert machine.requests.strongest is StopRequest.KILL


@pytest.mark.parametrize("own_steps", [0, 3])
@pytest.mark.parametrize("noticed", [True, False])
def test_a_stop_does_not_cut_the_upload_of_a_trainer_that_has_ended(
    machine: Machine, own_steps: int, noticed: bool
) -> None:
    machine.comes_to(10, 300.0)
    for number in range(own_steps):
        machine.comes_to(11 + number, 2.0)
    machine.ends()
    machine.requests.record_trainer_end(ended_well=True)
    machine.wire.pending_bytes = 140 * GB
    machine.at += 100.0
    if noticed:
        machine.stopping.set_machine_deadline(60.0)
    machine.stopping.request_save()

    assert not machine.requests.is_upload_time_over
    machine.at += 56.0
    assert not machine.requests.is_upload_time_over
    assert machine.flag is None


def test_what_all_ranks_have_ended_is_not_killed_while_the_launcher_still_runs(
    machine: Machine,
) -> None:
    machine.trains(2.0)
    machine.ends()
    machine.wire.pending_bytes = 140 * GB
    machine.stopping.set_machine_deadline(30.0)
    machine.stopping.request_save()

    assert not machine.requests.must_be_killed


def test_a_kill_long_after_the_trainer_ended_leaves_what_is_on_its_way_its_45_seconds(
    machine: Machine,
) -> None:
    machine.requests.record_trainer_end(ended_well=True)
    waiting_since = machine.at
    machine.at += 100.0
    machine.requests.request(StopRequest.KILL)
    machine.at += 9.9
    assert not machine.requests.is_peer_time_over(waiting_since)
    machine.at += 35.0
    assert not machine.requests.is_upload_time_over
    machine.at += 0.2

    assert machine.requests.is_peer_time_over(waiting_since)
    assert machine.requests.is_upload_time_over
