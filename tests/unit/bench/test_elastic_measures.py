"""Measures of the elastic benchmark, computed from two jobs' records."""

from bench.elastic.lives import GenerationWorld, JobHistory, MachineLoss, recovery
from bench.elastic.measures import measures, rows
from bench.recovery.observed.records import AttemptTimes, GenerationRecord, JobRecord

STRUCK = MachineLoss(noticed=False, at=100.0, attempt="a1", generation=1)


def generation(number: int, attempt: str, opened: float, halted: float | None) -> GenerationRecord:
    return GenerationRecord(number=number, attempt=attempt, opened_at=opened, halted_at=halted)


def attempt(name: str, number: int, created: float, ended: float | None = None) -> AttemptTimes:
    return AttemptTimes(
        id=name, number=number, created_at=created, terminating_at=ended, joined_at=created + 5
    )


def world(number: int, nodes: int, first: float | None, lost_steps: int = 0) -> GenerationWorld:
    return GenerationWorld(number=number, nodes=nodes, lost_steps=lost_steps, first_step_at=first)


def life(record: JobRecord, *worlds: GenerationWorld, elastic: bool, paid: float) -> JobHistory:
    return JobHistory(
        elastic=elastic,
        job="j",
        nodes=4,
        steps=1000,
        strikes=[STRUCK],
        record=record,
        worlds={w.number: w for w in worlds},
        paid_node_seconds=paid,
        step_seconds={4: 0.1},
    )


def elastic() -> JobHistory:
    """Return a job that resumes on three nodes in place, and later on four.

    An eviction also ends its first attempt to resume.
    """
    only = attempt("a1", 1, 0.0)
    record = JobRecord(
        generations=[
            generation(1, "a1", 10.0, 101.0),
            generation(2, "a1", 102.0, 103.0),
            generation(3, "a1", 104.0, 150.0),
            generation(4, "a1", 153.0, None),
        ],
        attempts=[only],
        by_id={"a1": only},
    )
    worlds = [world(1, 4, 15.0), world(2, 3, None, 7), world(3, 3, 110.0), world(4, 4, 160.0)]
    return life(record, *worlds, elastic=True, paid=5000.0)


def rigid() -> JobHistory:
    """Return a job that resumes on a new scale set of four nodes."""
    first, second = attempt("a1", 1, 0.0, 101.0), attempt("a2", 2, 101.5)
    record = JobRecord(
        generations=[generation(1, "a1", 10.0, None), generation(2, "a2", 121.5, None)],
        attempts=[first, second],
        by_id={"a1": first, "a2": second},
    )
    return life(record, world(1, 4, 15.0), world(2, 4, 130.0, 9), elastic=False, paid=8000.0)


def test_survivors_go_on_in_place_and_a_try_that_never_trained_is_a_part_of_the_way() -> None:
    times = recovery(elastic(), STRUCK)

    assert (times.detect, times.halt, times.machines, times.load) == (1.0, 3.0, None, 6.0)
    assert (times.training, times.full, times.nodes, times.lost_steps) == (10.0, 60.0, 3, 7)


def test_a_rigid_job_waits_for_another_set_and_is_full_with_its_first_step() -> None:
    times = recovery(rigid(), STRUCK)

    assert (times.detect, times.halt, times.machines, times.load) == (1.0, 0.5, 20.0, 8.5)
    assert times.training == times.full == 30.0
    assert times.lost_steps == 9


def test_what_never_came_is_not_a_number() -> None:
    times = recovery(rigid(), MachineLoss(noticed=True, at=140.0, attempt="a2", generation=2))

    assert (times.detect, times.training, times.full) == (None, None, None)


def test_the_rigid_job_is_the_rival_of_every_number() -> None:
    by_name = {m.name: m for m in measures(elastic(), rigid())}

    assert by_name["unnoticed_training_again_s"].value == 10.0
    assert by_name["unnoticed_training_again_s"].rivals == {"rigid": 30.0}
    assert by_name["noticed_full_again_s"].value is None
    goodput = by_name["steps_per_node_s"]
    assert (goodput.value, goodput.limit, goodput.rivals) == (0.2, 2.5, {"rigid": 0.125})
    assert [line[0] for line in rows([elastic(), rigid()])] == [
        "elastic, no notice",
        "rigid, no notice",
    ]
