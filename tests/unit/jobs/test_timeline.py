"""What an attempt's time went into, and how far a job is."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from service.domain.reporting.progress import with_committed
from service.domain.reporting.timeline import GenerationTimes, NodeTime, timeline
from service.domain.states import AttemptState
from trainer.contract import DirectiveKind, Span

START = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
PENDING, PROVISIONING, STARTING, ACTIVE, TERMINATING, ENDED = AttemptState
MOVES = dict(
    zip(
        AttemptState, (START + timedelta(seconds=s) for s in (0, 1, 60, 200, 500, 560)), strict=True
    )
)
WORLD = GenerationTimes(
    opened_at=START + timedelta(seconds=120),
    halted_at=START + timedelta(seconds=480),
    halt_kind=DirectiveKind.CHECKPOINT_AND_STOP,
)


def at(seconds: float) -> float:
    return START.timestamp() + seconds


def node(*spans: tuple[str, float, float], registered: float = 110) -> NodeTime:
    measured = tuple(Span(name=n, started_at=at(a), ended_at=at(b)) for n, a, b in spans)
    return NodeTime(registered_at=START + timedelta(seconds=registered), spans=measured)


def entries(
    moves: dict[AttemptState, datetime], worlds: list[GenerationTimes], nodes: list[NodeTime]
) -> list[tuple[str, float, float | None]]:
    return [
        (
            e.name,
            (e.started_at - START).total_seconds(),
            (e.ended_at - START).total_seconds() if e.ended_at else None,
        )
        for e in timeline(moves, worlds, nodes)
    ]


def test_a_whole_life_has_no_gap() -> None:
    spans = (("join", 90, 110), ("load", 121, 190), ("first_step", 190, 195))

    assert entries(MOVES, [WORLD], [node(*spans)]) == [
        ("create", 0, 1),
        ("allocate", 1, 60),
        ("boot", 60, 110),
        ("join", 90, 110),
        ("wait_for_nodes", 110, 120),
        ("load", 121, 190),
        ("first_step", 190, 195),
        ("train", 190, 480),
        ("save", 480, 500),
        ("delete", 500, 560),
    ]


@pytest.mark.parametrize(
    ("moves", "expected"),
    [
        ({s: MOVES[s] for s in (PENDING, PROVISIONING)}, [("allocate", 1, None)]),
        ({PENDING: MOVES[PENDING], ENDED: MOVES[PROVISIONING]}, []),
        (
            {s: MOVES[s] for s in (PENDING, PROVISIONING, TERMINATING)},
            [("allocate", 1, 500), ("delete", 500, None)],
        ),
    ],
    ids=["goes on", "ended before launch", "refused"],
)
def test_an_attempt_that_has_not_trained_shows_what_it_came_to(
    moves: dict[AttemptState, datetime], expected: list[tuple[str, float, float | None]]
) -> None:
    assert entries(moves, [], []) == [("create", 0, 1), *expected]


def test_the_same_work_of_two_nodes_is_one_entry_and_done_again_another() -> None:
    nodes = [
        node(("load", 121, 150), ("load", 300, 310)),
        node(("load", 125, 160), ("load", 299, 305)),
    ]

    loads = [e for e in entries({}, [], nodes) if e[0] == "load"]

    assert loads == [("load", 121, 160), ("load", 299, 310)]


def test_what_the_machines_measure_themselves_is_not_guessed() -> None:
    nodes = [node(("vm_boot", 62, 80), ("join", 90, 110), ("wait_for_nodes", 111, 119))]

    timeline = entries(MOVES, [WORLD], nodes)

    assert [e for e in timeline if e[0] in ("boot", "wait_for_nodes")] == [
        ("boot", 62, 80),
        ("wait_for_nodes", 111, 119),
    ]


def test_a_generation_after_another_trains_on_its_own_time() -> None:
    first = GenerationTimes(
        opened_at=WORLD.opened_at,
        halted_at=START + timedelta(seconds=250),
        halt_kind=DirectiveKind.STOP,
    )
    second = GenerationTimes(
        opened_at=START + timedelta(seconds=260), halted_at=None, halt_kind=None
    )
    nodes = [node(("first_step", 190, 195), ("first_step", 300, 301))]

    timeline = entries(
        {s: MOVES[s] for s in (PENDING, PROVISIONING, STARTING)}, [first, second], nodes
    )

    assert [e for e in timeline if e[0] in ("train", "stop")] == [
        ("train", 190, 250),
        ("stop", 250, 260),
        ("train", 300, None),
    ]


def test_nothing_trained_that_was_told_to_stop_while_it_loaded() -> None:
    halted = replace(WORLD, halted_at=START + timedelta(seconds=180), halt_kind=DirectiveKind.STOP)

    timeline = entries(MOVES, [halted], [node(("load", 121, 190), ("first_step", 190, 195))])

    assert "train" not in [name for name, _, _ in timeline]
    assert ("stop", 180, 500) in timeline


def test_every_name_has_a_title_whatever_its_clock_says() -> None:
    (entry,) = timeline({}, [], [node(("warm_up", -1e30, 1e30))])

    assert entry.title == "Warm up"


REPORTED = {"step": 134, "loss": 1.5, "reward": 0.2, "seconds_per_step": 0.5, "valid_loss": 1.4}


def test_the_committed_model_counts_where_the_reports_ended_before_it() -> None:
    progress = with_committed(REPORTED, 256, is_over=True, valid_loss=0.9)

    assert progress["step"] == 256
    assert (progress["loss"], progress["reward"], progress["valid_loss"]) == (None, None, 0.9)
    assert progress["seconds_per_step"] == 0.5


def test_a_job_that_goes_on_keeps_its_figures_until_the_next_report() -> None:
    assert with_committed(REPORTED, 140, is_over=False) == REPORTED | {"step": 140}


def test_reports_of_later_steps_than_the_checkpoint_stay_as_they_are() -> None:
    assert with_committed(REPORTED, 128, is_over=True, valid_loss=0.9) == REPORTED
    assert with_committed({}, 0, is_over=False) == {}
