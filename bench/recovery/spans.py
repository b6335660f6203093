"""A recovery cut into named pieces, and which of them are our own.

From the strike to the end of the first step after it:

    detect     until the service has committed what to do about it
    stop       until the next attempt, or on the same machines the next generation, is written:
               members save, upload, and say that they have stopped
    create     until Azure has accepted the scale set
    allocate   until its last machine has started: the cloud's, so not ours
    boot       until the first node has registered: cloud-init, the supervisor's start
    open       until the generation is opened: the other nodes join, HEAD is fenced
    fetch      until inputs and checkpoint are on the machines
    start      until the trainer's processes have met: imports, rendezvous
    load       until model and checkpoint are loaded
    first_step until the first step is done

Own is the sum of all but ``allocate``.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from bench.recovery.book import Strike
from bench.recovery.records import AttemptRow, JobRecord, Span

NOT_OURS = frozenset({"allocate"})
_FETCH = ("fetch_inputs", "fetch_checkpoint")
_START = ("start_trainer", "load_imports", "load_world", "load_wait")
_LOAD = ("load_model", "load_checkpoint")
ORDER = (
    *("detect", "stop", "create", "allocate", "boot", "open"),
    *("fetch", "start", "load", "first_step"),
)


def pieces(
    strike: Strike,
    record: JobRecord,
    sets_made_at: Mapping[str, float],
    machines_up_at: Mapping[str, float],
) -> dict[str, float]:
    """Seconds by name; empty when the strike has no recovery or a moment of it is unknown."""
    opened = record.generation(strike.next_generation)
    if strike.first_step_at is None or opened is None:
        return {}
    attempt = record.by_id[opened.attempt]
    decided = record.decision_after(strike.at, strike.generation, strike.attempt)
    moved = attempt.id != strike.attempt
    moments: list[tuple[str, float | None]] = [("", strike.at), ("detect", decided)]
    if moved:
        moments += [
            ("stop", attempt.created_at),
            ("create", sets_made_at.get(attempt.id)),
            ("allocate", machines_up_at.get(attempt.id)),
            ("boot", attempt.joined_at),
            ("open", opened.opened_at),
        ]
    else:
        moments.append(("stop", opened.opened_at))
    within = (opened.opened_at, strike.first_step_at)
    moments += [
        ("fetch", _last_end(attempt, _FETCH, *within)),
        ("start", _last_end(attempt, _START, *within)),
        ("load", _last_end(attempt, _LOAD, *within)),
        ("first_step", strike.first_step_at),
    ]
    return _cut([(name, at) for name, at in moments if at is not None])


def own(parts: Mapping[str, float]) -> float | None:
    """What the cloud has no part in."""
    return sum(s for name, s in parts.items() if name not in NOT_OURS) if parts else None


def _cut(moments: Sequence[tuple[str, float]]) -> dict[str, float]:
    """The lengths between moments; one that lies before its predecessor took no time.

    What is cut off there is found in the next piece, so that nothing is left out of the sum.
    """
    parts: dict[str, float] = {}
    at = moments[0][1]
    for _, (name, then) in pairwise(moments):
        parts[name] = max(then - at, 0.0)
        at = max(at, then)
    return parts


def _last_end(
    attempt: AttemptRow, names: Sequence[str], after: float, before: float
) -> float | None:
    """The end of the last of these spans between the generation's opening and its first step.

    A later generation on the same machines has spans of the same names.
    """
    spans = _of(attempt.spans, names)
    return max((s[2] for s in spans if s[1] >= after and s[2] <= before), default=None)


def _of(spans: Sequence[Span], names: Sequence[str]) -> list[Span]:
    return [s for s in spans if s[0] in names]
