"""Measures of recoveries, computed from kills and the service's own record."""

from dataclasses import replace

from bench.recovery.book import Book, ObservedGeneration, Strike
from bench.recovery.measures import broken, measures, notice_to_decision, recoveries
from bench.recovery.observed import spans
from bench.recovery.observed.records import AttemptTimes, GenerationRecord, JobRecord
from bench.recovery.plan import Kill, KillKind, Phase

OLD = AttemptTimes(id="a1", number=1, created_at=0.0, terminating_at=103.0, joined_at=8.0)
NEW = AttemptTimes(
    id="a2",
    number=2,
    created_at=103.5,
    terminating_at=None,
    joined_at=110.0,
    spans=[
        ("fetch_inputs", 111.0, 112.0),
        ("load_world", 112.5, 115.0),
        ("load_model", 115.0, 116.0),
        ("load_checkpoint", 116.0, 117.0),
    ],
)
RECORD = JobRecord(
    generations=[
        GenerationRecord(number=1, attempt="a1", opened_at=10.0, halted_at=101.0),
        GenerationRecord(number=2, attempt="a2", opened_at=111.0, halted_at=None),
    ],
    attempts=[OLD, NEW],
    by_id={"a1": OLD, "a2": NEW},
)


def strike(kind: KillKind = KillKind.EVICT, at: float = 100.0, **fields: object) -> Strike:
    kill = Kill(number=1, kind=kind, phase=Phase.STEP, delay=0, pick=0, after_commit=False)
    facts: dict[str, object] = {
        "kill": kill,
        "phase": Phase.STEP,
        "slot": 0,
        "job": "j",
        "attempt": "a1",
        "generation": 1,
        "at": at,
        "step": 30,
        "periodic_step": 20,
    }
    return Strike(**(facts | fields))  # type: ignore[arg-type]  # a row of a table


def recovered() -> Strike:
    return strike(first_step_at=118.0, next_generation=2, lost_steps=0)


def book(*strikes: Strike) -> Book:
    return Book(
        kills=len(strikes),
        seed=1,
        strikes=list(strikes),
        sets_created_at={"a2": 104.0},
        machines_up_at={"a2": 107.0},
        leaked=[],
    )


def value(name: str, of: Book) -> object:
    return next(m.value for m in measures(of, {"j": RECORD}) if m.name == name)


def test_the_pieces_of_a_recovery_add_up_to_the_whole() -> None:
    parts = spans.pieces(recovered(), RECORD, {"a2": 104.0}, {"a2": 107.0})

    assert parts == {
        "detect": 1.0,
        "stop": 2.5,
        "create": 0.5,
        "allocate": 3.0,
        "boot": 3.0,
        "open": 1.0,
        "fetch": 1.0,
        "start": 3.0,
        "load": 2.0,
        "first_step": 1.0,
    }
    assert sum(parts.values()) == 18.0
    assert spans.own_seconds(parts) == 15.0


def test_what_a_later_generation_on_the_same_machines_fetches_is_not_this_recoverys() -> None:
    fetching = replace(NEW, spans=[*NEW.spans, ("fetch_inputs", 140.0, 141.0)])
    record = replace(RECORD, attempts=[OLD, fetching], by_id={"a1": OLD, "a2": fetching})

    assert spans.pieces(recovered(), record, {"a2": 104.0}, {"a2": 107.0})["fetch"] == 1.0


def test_a_recovery_on_the_same_machines_has_no_allocation() -> None:
    record = JobRecord(
        generations=[
            GenerationRecord(number=1, attempt="a1", opened_at=10.0, halted_at=None),
            GenerationRecord(number=2, attempt="a1", opened_at=102.0, halted_at=None),
        ],
        attempts=[OLD],
        by_id={"a1": OLD},
    )
    parts = spans.pieces(recovered(), record, {}, {})

    assert parts == {"detect": 2.0, "stop": 0.0, "first_step": 16.0}
    assert spans.pieces(strike(), RECORD, {}, {}) == {}, "it never recovered"
    assert spans.own_seconds({}) is None


def test_a_recovery_that_another_kill_fell_upon_is_not_measured() -> None:
    first = recovered()
    second = strike(KillKind.VM, at=110.0)
    service = strike(KillKind.SERVICE, at=95.0, job="other", back_at=101.0)

    assert len(recoveries(book(first, strike(KillKind.VM, job="k")), {"j": RECORD})) == 1
    assert not recoveries(book(first, second), {"j": RECORD})
    assert not recoveries(book(first, service), {"j": RECORD})


def test_nobody_decides_while_the_service_is_dead() -> None:
    service = strike(KillKind.SERVICE, at=99.0, job="other", back_at=103.0)

    assert notice_to_decision(book(recovered()), {"j": RECORD}) == [1.0], "the first committed"
    assert notice_to_decision(book(recovered(), service), {"j": RECORD}) == []
    assert notice_to_decision(
        book(recovered(), service), {"j": RECORD}, during_service_kill=True
    ) == [1.0]


def test_an_unnoticed_loss_is_not_mixed_with_noticed_ones() -> None:
    recoveries = book(recovered(), strike(KillKind.VM, lost_steps=12))

    (noticed,) = [
        m for m in measures(recoveries, {"j": RECORD}) if m.name == "steps_lost_noticed_p50"
    ]

    assert (noticed.value, noticed.rivals) == (0, {"periodic_checkpoints_only": 10})
    assert value("steps_lost_noticed_p99", recoveries) == 0
    assert value("steps_lost_unnoticed_p50", recoveries) == 12


def test_a_leak_breaks_a_promise_and_a_long_recovery_does_not() -> None:
    leaky = book(recovered())
    leaky.leaked = ["scale set rk-a1"]

    cut_short = replace(leaky, leaked=None)

    assert broken(measures(leaky, {"j": RECORD})) == ["leaked"]
    assert broken(measures(book(recovered()), {"j": RECORD})) == []
    assert [value(name, cut_short) for name in ("leaked", "jobs_unfinished")] == [None, None]


def test_a_generation_that_never_stepped_is_not_a_recovery() -> None:
    recoveries = book(strike())
    for number, at in ((2, None), (3, 130.0)):
        recoveries.note_generation(
            ObservedGeneration(
                job="j", number=number, attempt="a2", loaded_step=20, first_step_at=at
            )
        )
    generation = recoveries.generation_after(recoveries.strikes[0])

    assert generation is not None
    assert generation.number == 3


def test_an_eviction_in_azure_ml_is_none_with_notice() -> None:
    recoveries = book(
        strike(in_azureml=True, first_step_at=118.0, next_generation=2, lost_steps=12)
    )
    values = {m.name: m.value for m in measures(recoveries, {"j": RECORD})}

    assert recoveries.strikes[0].kind is KillKind.PREEMPT
    assert values["steps_lost_noticed_p50"] is None
    assert values["notice_to_decision_s_p50"] is None
