"""Measures of the elastic job, with the rigid job as the rival."""

from collections.abc import Callable, Iterable, Sequence

from bench.elastic.lives import JobHistory, Recovery, recovery
from bench.report import Measure, rounded

PARTS = ("detect", "halt", "machines", "load", "training", "full")
_SECONDS = {
    "detect": "detect_s",
    "halt": "halt_s",
    "machines": "machines_s",
    "load": "load_s",
    "training": "training_again_s",
    "full": "full_again_s",
}


def measures(elastic: JobHistory, rigid: JobHistory) -> list[Measure]:
    """Return the measures of each eviction, and then those of the whole job."""
    return [
        *(
            m
            for noticed in (False, True)
            for m in _strike_measures(elastic, rigid, noticed=noticed)
        ),
        _compared("steps_lost", "steps", elastic, rigid, _repeated_steps, limit=0),
        _compared(
            "paid_node_s", "s", elastic, rigid, lambda history: history.paid_node_seconds, digits=0
        ),
        _goodput(elastic, rigid),
    ]


def rows(histories: Iterable[JobHistory]) -> Sequence[tuple[object, ...]]:
    """Return one table row for each eviction."""
    return [
        (
            f"{'elastic' if history.elastic else 'rigid'}, {'' if row.noticed else 'no '}notice",
            row.nodes or None,
            *(rounded(getattr(row, part), 1) for part in PARTS),
            row.lost_steps,
        )
        for history in histories
        for row in (recovery(history, strike) for strike in history.strikes)
    ]


def _strike_measures(elastic: JobHistory, rigid: JobHistory, *, noticed: bool) -> Iterable[Measure]:
    elastic_recovery = _recovery(elastic, noticed=noticed)
    rigid_recovery = _recovery(rigid, noticed=noticed)
    prefix = "noticed" if noticed else "unnoticed"
    for part in PARTS:
        yield Measure(
            name=f"{prefix}_{_SECONDS[part]}",
            value=rounded(getattr(elastic_recovery, part), 2),
            unit="s",
            rivals={"rigid": rounded(getattr(rigid_recovery, part), 2)},
        )
    rivals = {"rigid": rigid_recovery.lost_steps}
    name = f"{prefix}_steps_lost"
    yield Measure(
        name=name, value=elastic_recovery.lost_steps, unit="steps", limit=0, rivals=rivals
    )


def _recovery(history: JobHistory, *, noticed: bool) -> Recovery:
    strikes = (s for s in history.strikes if s.noticed is noticed)
    return next((recovery(history, s) for s in strikes), Recovery(noticed=noticed))


def _compared(
    name: str,
    unit: str,
    elastic: JobHistory,
    rigid: JobHistory,
    of: Callable[[JobHistory], float],
    *,
    limit: float | None = None,
    digits: int = 3,
) -> Measure:
    rivals = {"rigid": rounded(of(rigid), digits)}
    value = rounded(of(elastic), digits)
    return Measure(name=name, value=value, unit=unit, limit=limit, rivals=rivals)


def _repeated_steps(history: JobHistory) -> float:
    return sum(world.lost_steps for world in history.worlds.values())


def _goodput(elastic: JobHistory, rigid: JobHistory) -> Measure:
    """Return steps per paid node second.

    The limit is the rate of all nodes while they train, without boots, waits or repeated steps.
    """
    pace = [history.step_seconds[history.nodes] for history in (elastic, rigid)]
    return Measure(
        name="steps_per_node_s",
        value=rounded(elastic.steps_per_node_second, 4),
        unit="steps/node-s",
        limit=rounded(1 / (elastic.nodes * min(pace)), 4),
        rivals={"rigid": rounded(rigid.steps_per_node_second, 4)},
        higher_is_better=True,
    )
