"""Measures of the recovery benchmark, computed from the record of a run."""

from collections.abc import Iterable, Mapping, Sequence

from bench.recovery.book import Book, Strike
from bench.recovery.observed import spans
from bench.recovery.observed.records import JobRecord
from bench.recovery.plan import TRAINING, KillKind, Phase
from bench.report import Measure, percentile, rounded

LEASE_SECONDS = 7.0  # lease of 6 s, and 1 s until the next reconciler polls
Records = Mapping[str, JobRecord]
Recoveries = Sequence[tuple[Strike, Mapping[str, float]]]


def measures(book: Book, records: Records) -> list[Measure]:
    """Return all measures; other checks rely on their names."""
    noticed, unnoticed = _lost_steps(book, KillKind.EVICT), _lost_steps(book, KillKind.VM)
    rival = [max((s.step - s.periodic_step), 0) for s in _trained(book, KillKind.EVICT)]
    decisions = notice_to_decision(book, records)
    after_kill = notice_to_decision(book, records, during_service_kill=True)
    alone = recoveries(book, records)
    own = [o for _, parts in alone if (o := spans.own_seconds(parts)) is not None]
    raw = [s.first_step_at - s.at for s, _ in alone if s.first_step_at is not None]
    return [
        Measure(name="kills", value=len(book.strikes), unit="kills"),
        *_promises(book),
        _steps("steps_lost_noticed_p50", noticed, 50, bar=0, rival=rival),
        _steps("steps_lost_noticed_p99", noticed, 99, bar=1, rival=rival),
        _steps("steps_lost_unnoticed_p50", unnoticed, 50),
        _steps("steps_lost_unnoticed_p99", unnoticed, 99),
        _seconds("notice_to_decision_s_p50", decisions, 50),
        _seconds("notice_to_decision_s_p99", decisions, 99, bar=2.0, limit=1.0),
        _seconds("notice_to_decision_after_service_kill_s_p99", after_kill, 99),
        _seconds("own_recovery_s_p50", own, 50, bar=30.0),
        _seconds("own_recovery_s_p99", own, 99, bar=30.0),
        _seconds("raw_recovery_s_p50", raw, 50),
        _seconds("raw_recovery_s_p99", raw, 99),
        _seconds("service_back_s_p50", service_outages(book), 50),
        _seconds("service_back_s_p99", service_outages(book), 99),
    ]


def recoveries(book: Book, records: Records) -> Recoveries:
    """Return the kills that ended a generation with no other kill meanwhile, and their pieces."""
    pairs = []
    for strike in book.strikes:
        has_recovered = strike.first_step_at is not None and strike.job in records
        if has_recovered and strike.kind is not KillKind.SERVICE and book.is_isolated(strike):
            args = (records[strike.job], book.sets_created_at, book.machines_up_at)
            pairs.append((strike, spans.pieces(strike, *args)))
    return pairs


def notice_to_decision(
    book: Book, records: Records, *, during_service_kill: bool = False
) -> list[float]:
    """Return the seconds from the notice in the metadata service to the committed decision.

    Args:
        book: Record of the run.
        records: The service's records by job.
        during_service_kill: Select notices during kills of the service; else all other notices.
    """
    waits = []
    for strike in book.strikes:
        if strike.kind is not KillKind.EVICT or strike.job not in records:
            continue
        if _during_service_kill(book, strike) is not during_service_kill:
            continue
        row = records[strike.job]
        decided = row.decision_after(strike.at, strike.generation, strike.attempt)
        if decided is not None:
            waits.append(decided - strike.at)
    return waits


def service_outages(book: Book) -> list[float]:
    """Return the seconds from each kill of the service until it answers again."""
    return [s.back_at - s.at for s in book.strikes if s.back_at is not None]


def broken(results: Iterable[Measure]) -> list[str]:
    """Return the names of the broken promises."""
    return [m.name for m in results if not m.passes and m.name in PROMISES]


PROMISES = ("jobs_unfinished", "leaked", "doubled", "torn_resumes", "hash_mismatches")


def _promises(book: Book) -> Iterable[Measure]:
    counts = (
        None if book.leaked is None and not book.unfinished else len(book.unfinished),
        None if book.leaked is None else len(book.leaked),
        len(book.doubled),
        len(book.torn),
        len(book.mismatches),
    )
    units = ("jobs", "things", "cases", "checkpoints", "jobs")
    for name, count, unit in zip(PROMISES, counts, units, strict=True):
        yield Measure(name=name, value=count, unit=unit, bar=0, limit=0)


def _steps(
    name: str,
    lost_steps: Sequence[int],
    percent: float,
    bar: float | None = None,
    rival: Sequence[int] = (),
) -> Measure:
    rivals = {"periodic_checkpoints_only": percentile(rival, percent)} if rival else {}
    value = percentile(lost_steps, percent)
    return Measure(name=name, value=value, unit="steps", bar=bar, limit=0, rivals=rivals)


def _seconds(
    name: str,
    values: Sequence[float],
    percent: float,
    bar: float | None = None,
    limit: float | None = None,
) -> Measure:
    value = rounded(percentile(values, percent))
    return Measure(name=name, value=value, unit="s", bar=bar, limit=limit)


def _lost_steps(book: Book, kind: KillKind) -> list[int]:
    """Return the repeated steps after each kill of a job that was training."""
    return [s.lost_steps for s in _trained(book, kind) if s.lost_steps is not None]


def _trained(book: Book, kind: KillKind) -> list[Strike]:
    return [s for s in book.strikes if s.kind is kind and s.phase in TRAINING]


def _during_service_kill(book: Book, strike: Strike) -> bool:
    """Return whether the service was down at the kill, or a dead replica still held its lease."""
    for other in book.strikes:
        if other.affects_all_jobs and other.at <= strike.at + 2:
            back = other.back_at or float("inf")
            if max(back + 1, other.at + LEASE_SECONDS) >= strike.at:
                return True
    return False


def by(book: Book, key: str) -> Sequence[tuple[object, ...]]:
    """Return table rows of kills, lost steps and recovery seconds, by kind or phase."""
    rows = []
    for name in KillKind if key == "kind" else Phase:
        strikes = [s for s in book.strikes if getattr(s, key) is name]
        lost_steps = [s.lost_steps for s in strikes if s.lost_steps is not None]
        raw = [s.first_step_at - s.at for s in strikes if s.first_step_at is not None]
        raw += [s.back_at - s.at for s in strikes if s.back_at is not None]
        middle, high = rounded(percentile(raw, 50), 1), rounded(percentile(raw, 99), 1)
        rows.append((str(name), len(strikes), percentile(lost_steps, 50), middle, high))
    return rows


def piece_rows(recovered: Recoveries) -> Sequence[tuple[object, ...]]:
    """Return table rows of the pieces of a recovery, in seconds."""
    rows = []
    for name in spans.ORDER:
        seconds = [parts[name] for _, parts in recovered if name in parts]
        owner = "the cloud's" if name in spans.CLOUD_PIECES else ""
        row = (percentile(seconds, 50), percentile(seconds, 99))
        rows.append((f"{name} {owner}".strip(), rounded(row[0], 2), rounded(row[1], 2)))
    return rows
