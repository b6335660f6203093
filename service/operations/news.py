"""News that thousands of nodes tell at once: one transaction for what `nodes.hear` hears alone."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from service.db import events, heartbeats, leases, locks, metrics, tables, versions
from service.db.events import Event
from service.db.heartbeats import Progress, Speaker
from service.domain.errors import Gone, NodeNotFound
from service.domain.node import Ignored, NodeRecord, StaleEpoch, heard, is_stale
from service.operations.nodes import OVER, Heard, must_act, news
from trainer.contract import Heartbeat


async def hear_all(
    conn: AsyncConnection, said: Mapping[str, Heartbeat], now: datetime
) -> dict[str, Heard | Exception]:
    """What becomes of each node's heartbeat, where it tells its usual news (`is_usual`).

    Locks nodes, then what was measured, then attempts, then jobs, each kind in one order.
    """
    found = await heartbeats.speakers(conn, list(said))
    answers: dict[str, Heard | Exception] = {}
    after: dict[str, NodeRecord] = {}
    for node, heartbeat in said.items():
        answers[node] = _answered(node, found.get(node), heartbeat, now)
        answer = answers[node]
        if isinstance(answer, Heard) and answer.node != found[node].record:
            after[node] = answer.node
    if after:
        await heartbeats.save(conn, list(after.values()), now)
        await _tell(conn, [(found[n], said[n], r) for n, r in sorted(after.items())], now)
    return answers


async def keep_measured(
    conn: AsyncConnection, told: Sequence[tuple[str, Heartbeat]], now: datetime
) -> None:
    """What nodes of these jobs have measured, and how far the jobs are by it."""
    rows = [(job_id, h.generation, h.metrics) for job_id, h in told]
    await metrics.add_all(conn, rows)
    progress = {job_id: _far(job_id, h) for job_id, h in told}
    await heartbeats.progressed(conn, list(progress.values()), now)


def _answered(
    node: str, speaker: Speaker | None, heartbeat: Heartbeat, now: datetime
) -> Heard | Exception:
    """What to answer it; the row after it is the answer's."""
    if speaker is None:
        return NodeNotFound(f"No node {node:.80}. Register first.")
    if speaker.over:
        return Gone(OVER)
    after = heard(speaker.record, heartbeat, now.timestamp())
    if isinstance(after, StaleEpoch):
        return Heard(node=speaker.record, refusal="stale_epoch")
    if isinstance(after, Ignored):
        return Heard(node=speaker.record, stop_by=speaker.stop_by)
    stale = is_stale(heartbeat, speaker.current)
    refusal = "stale_generation" if stale else ""
    return Heard(
        node=after,
        refusal=refusal,
        stop_by=speaker.stop_by,
        is_fresh=True,
        region=speaker.region,
        vm_size=speaker.vm_size,
    )


async def _tell(
    conn: AsyncConnection, told: Sequence[tuple[Speaker, Heartbeat, NodeRecord]], now: datetime
) -> None:
    """Wake the reconcilers that must act, and keep what was measured and announced."""
    measured = [(s.job_id, h) for s, h, _ in told if h.metrics]
    await metrics.add_all(conn, [(j, h.generation, h.metrics) for j, h in measured])
    wakes = {s.record.attempt_id for s, h, after in told if must_act(s.record, after, h)}
    await leases.hint_all(conn, tables.attempts, wakes, now)
    noticed = [(s, h) for s, h, _ in told if h.eviction is not None and not s.record.evicting]
    current = [(s.job_id, h) for s, h, _ in told if h.metrics and h.generation == s.current]
    if not noticed and not measured:
        return
    await locks.take(conn, tables.jobs, {s.job_id for s, *_ in told})
    await versions.raise_all(conn, {s.job_id for s, _ in noticed}, now)
    await events.add_all(conn, [_notice(s, h, now) for s, h in noticed])
    await heartbeats.progressed(conn, [*{j: _far(j, h) for j, h in current}.values()], now)


def _notice(speaker: Speaker, heartbeat: Heartbeat, now: datetime) -> Event:
    assert heartbeat.eviction is not None, "it is one"
    which = speaker.attempt_number
    data = {"node": speaker.record.node_id, "not_before": heartbeat.eviction.not_before}
    of = (speaker.job_id, speaker.record.attempt_id, now)
    said = f"Azure announced that it takes back one instance of attempt {which}"
    return events.fresh(*of, "node.eviction_notice", said, level="warn", data=data)


def _far(job_id: str, heartbeat: Heartbeat) -> Progress:
    step = max(m.step for m in heartbeat.metrics)
    return Progress(job_id=job_id, generation=heartbeat.generation, step=step, news=news(heartbeat))
