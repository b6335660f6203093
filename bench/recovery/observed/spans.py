"""Pieces of a recovery, and which of them are Rekindle's own.

They run from the kill to the end of the first step after it:

    detect     until the service commits its decision
    stop       until the next attempt, or the next generation on the same machines, is written:
               members save, upload, and report that they stopped
    create     until Azure accepts the scale set
    allocate   until its last machine starts; this is the cloud's time, not Rekindle's
    boot       until the first node registers: cloud-init, start of the supervisor
    open       until the generation is opened: the other nodes join, HEAD is fenced
    fetch      until inputs and checkpoint are on the machines
    start      until the trainer's processes have met: imports, rendezvous
    load       until model and checkpoint are loaded
    first_step until the first step ends

Rekindle's own time is the sum without ``allocate``.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from bench.recovery.book import Strike
from bench.recovery.observed.records import AttemptTimes, JobRecord, Span

CLOUD_PIECES = frozenset({"allocate"})
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
    sets_created_at: Mapping[str, float],
    machines_up_at: Mapping[str, float],
) -> dict[str, float]:
    """Return the seconds of each piece; empty without a recovery.

    A piece whose moment is unknown is left out, and its time counts to the next piece.
    """
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
            ("create", sets_created_at.get(attempt.id)),
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
    return _durations([(name, at) for name, at in moments if at is not None])


def own_seconds(parts: Mapping[str, float]) -> float | None:
    """Return the seconds of all pieces without the cloud's, or None without pieces."""
    return sum(s for name, s in parts.items() if name not in CLOUD_PIECES) if parts else None


def _durations(moments: Sequence[tuple[str, float]]) -> dict[str, float]:
    """Return the differences between moments; a moment before its predecessor gives 0.

    The next piece is then shorter, so that the sum is the whole recovery.
    """
    parts: dict[str, float] = {}
    at = moments[0][1]
    for _, (name, then) in pairwise(moments):
        parts[name] = max(then - at, 0.0)
        at = max(at, then)
    return parts


def _last_end(
    attempt: AttemptTimes, names: Sequence[str], after: float, before: float
) -> float | None:
    """Return the last end of these spans between the generation's opening and its first step.

    The limits exclude spans of later generations on the same machines, which have the same names.
    """
    spans = _spans_with_names(attempt.spans, names)
    return max((s[2] for s in spans if s[1] >= after and s[2] <= before), default=None)


def _spans_with_names(spans: Sequence[Span], names: Sequence[str]) -> list[Span]:
    return [s for s in spans if s[0] in names]
