"""The service's side of the node protocol: heartbeats and directives.

What a message changes is decided by the pure rules in domain/node.py; here it is read,
written and passed on to the reconciler. One transaction each.
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from service.db import (
    attempts,
    events,
    findings,
    generations,
    jobs,
    leases,
    metrics,
    nodes,
    tables,
)
from service.db.attempts import AttemptRow
from service.db.generations import Opened
from service.db.jobs import JobRow
from service.domain.cadence import save_cost
from service.domain.errors import Gone, NodeNotFound
from service.domain.findings import Finding
from service.domain.node import (
    Ignored,
    NodeRecord,
    StaleEpoch,
    heard,
    is_stale,
)
from service.domain.progress import OF_METHODS
from service.domain.states import ATTEMPT_OVER
from service.instruments import NODES_UNHEALTHY
from trainer.contract import UNSTORABLE, Generation, Heartbeat, StepMetrics, Trouble

log = logging.getLogger(__name__)
_LONGEST = 400  # of what a node says in a sentence
_LONGEST_SENTENCE = 4000  # of a trouble
_SAID = {"notice": "eviction.answered", "training": "training.warned"}  # by kind of trouble
OVER = "The attempt is over. This node is not needed any more: stop and leave."


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A node with the attempt and job it works for."""

    node: NodeRecord
    attempt: AttemptRow
    job: JobRow
    registered_at: float = 0.0  # unix seconds of the last fresh registration
    came_again: bool = False  # it has registered before


@dataclass(frozen=True, kw_only=True)
class Heard:
    """What became of a heartbeat: ``refusal`` is "", "stale_epoch" or "stale_generation"."""

    node: NodeRecord
    refusal: str = ""
    stop_by: datetime | None = None  # as its job's budget allows; None: whatever
    is_fresh: bool = False  # it was taken in, and not heard before
    region: str = ""  # where the node is
    vm_size: str = ""


async def hear(conn: AsyncConnection, node: str, heartbeat: Heartbeat, now: datetime) -> Heard:
    """Take in a heartbeat; one without news changes nothing. Raises Gone and NodeNotFound."""
    record = await nodes.lock(conn, node)
    if record is None:
        raise NodeNotFound(f"No node {node:.80}. Register first.")
    attempt = await live_attempt(conn, record.attempt_id)
    after = heard(record, heartbeat, now.timestamp())
    if isinstance(after, StaleEpoch):
        return Heard(node=record, refusal="stale_epoch")
    if isinstance(after, Ignored):
        return Heard(node=record, stop_by=attempt.stop_by)
    await nodes.save(conn, after, error=printable(heartbeat.error))
    spans = await nodes.add_spans(conn, node, [s.to_plain() for s in heartbeat.spans])
    await metrics.add(conn, attempt.job_id, heartbeat.generation, heartbeat.metrics)
    await _report(conn, attempt, record, after, heartbeat, now)
    await _believe_later(conn, attempt, node, heartbeat)
    if any(span["name"] == "load" for span in spans):
        await _tell_of_loading(conn, attempt, node, heartbeat, now)
    for trouble in heartbeat.troubles:
        await _complain(conn, attempt, node, trouble, now)
    number = await current_number(conn, attempt.id)
    if heartbeat.metrics and heartbeat.generation == number:
        await _progress(conn, attempt.job_id, heartbeat, now)
    stale = is_stale(heartbeat, number)
    refusal = "stale_generation" if stale else ""
    return Heard(
        node=after,
        refusal=refusal,
        stop_by=attempt.stop_by,
        is_fresh=True,
        region=attempt.offering.region,
        vm_size=attempt.offering.vm_size,
    )


async def standing(conn: AsyncConnection, node: str) -> Standing:
    """The node's directive as it stands. Raises Gone and NodeNotFound."""
    record = await nodes.find(conn, node)
    if record is None:
        raise NodeNotFound(f"No node {node:.80}. Register first.")
    attempt = await live_attempt(conn, record.attempt_id)
    return Standing(
        node=record,
        attempt=attempt,
        job=await job_of(conn, attempt),
        registered_at=await nodes.registered_at(conn, node),
    )


async def generation_of(conn: AsyncConnection, attempt_id: str, number: int) -> Generation | None:
    """The attempt's newest generation if it has this number."""
    opened = await _current(conn, attempt_id)
    return opened.generation if opened and opened.generation.number == number else None


def must_act(before: NodeRecord, after: NodeRecord, heartbeat: Heartbeat) -> bool:
    """True when the heartbeat says something that the reconciler must act on.

    The first port makes the node one that may train. A notice is no news of who stops already.
    """
    first_step = after.step > 0 and before.step == 0
    was = (before.phase, before.generation, before.free_port > 0)
    changed = was != (after.phase, after.generation, after.free_port > 0)
    noticed = after.evicting and not before.evicting and not before.stops
    ill = after.unhealthy_at > 0 and not before.unhealthy_at
    return changed or noticed or ill or first_step or bool(heartbeat.committed)


async def _report(
    conn: AsyncConnection,
    attempt: AttemptRow,
    before: NodeRecord,
    after: NodeRecord,
    heartbeat: Heartbeat,
    now: datetime,
) -> None:
    """Wake the reconciler when the heartbeat says something that it must act on."""
    if must_act(before, after, heartbeat):
        await leases.hint(conn, tables.attempts, attempt.id, now)
    if heartbeat.eviction is not None and not before.evicting:
        await events.add(
            conn,
            attempt.job_id,
            now,
            "node.eviction_notice",
            f"Azure announced that it takes back one instance of attempt {attempt.number}",
            attempt_id=attempt.id,
            level="warn",
            data={"node": after.node_id, "not_before": heartbeat.eviction.not_before},
        )
    if after.unhealthy_at and not before.unhealthy_at:
        await _tell_unhealthy(conn, attempt, after, printable(heartbeat.unhealthy), now)


async def _tell_unhealthy(
    conn: AsyncConnection, attempt: AttemptRow, node: NodeRecord, why: str, now: datetime
) -> None:
    """Name the instance, so that the user and Azure's support can find it."""
    instance = await nodes.name_of(conn, node.node_id)
    facts = {"node": node.node_id, "vm_id": node.vm_id, "instance": instance}
    log.warning("node.unhealthy", extra={"attempt": attempt.id, **facts})
    NODES_UNHEALTHY.add()
    await events.add(
        conn,
        attempt.job_id,
        now,
        "node.unhealthy",
        f"Instance {instance} of attempt {attempt.number} is unhealthy and is deleted:"
        f" {why[:_LONGEST_SENTENCE]}",
        attempt_id=attempt.id,
        level="warn",
        data=facts,
    )


async def _believe_later(
    conn: AsyncConnection, attempt: AttemptRow, node: str, heartbeat: Heartbeat
) -> None:
    """Keep a complaint about the checkpoint that the node's generation was to load.

    It is judged before the next generation opens. Of any other checkpoint a node knows nothing.
    """
    broken = heartbeat.broken
    if broken is None:
        return
    generation = await generation_of(conn, attempt.id, heartbeat.generation)
    loaded = generation.checkpoint if generation else None
    if loaded is None or loaded.path != broken.path:
        return
    finding = Finding(
        node_id=node,
        attempt_id=attempt.id,
        generation=heartbeat.generation,
        file=printable(broken.file)[:_LONGEST],
        reason=printable(broken.reason)[:_LONGEST],
    )
    await findings.add(conn, attempt.job_id, broken.path, finding)


async def _tell_of_loading(
    conn: AsyncConnection, attempt: AttemptRow, node: str, heartbeat: Heartbeat, now: datetime
) -> None:
    """Add an event when a generation begins its first step: of all its nodes the first tells."""
    generation = await generation_of(conn, attempt.id, heartbeat.generation)
    if generation and generation.members[0].node_id == node:
        said = f"Attempt {attempt.number}: the model is loaded, and the first step is running"
        await events.add(
            conn, attempt.job_id, now, "generation.loaded", said, attempt_id=attempt.id
        )


async def _progress(
    conn: AsyncConnection, job_id: str, heartbeat: Heartbeat, now: datetime
) -> None:
    """Keep what everybody who looks at the job wants to know, so that a look is one query."""
    last = max(heartbeat.metrics, key=lambda m: m.step)
    pace = await metrics.pace(conn, job_id, heartbeat.generation, last.step)
    known = {name: _finite(value) for name, value in vars(pace).items()}
    await jobs.progressed(conn, job_id, now, news(heartbeat) | known)


def news(heartbeat: Heartbeat) -> dict[str, Any]:
    """What its metrics say of how far the job is."""
    return figures(heartbeat.metrics) | save_cost(heartbeat.save_cost)


def figures(measured: Sequence[StepMetrics]) -> dict[str, Any]:
    """Return the progress of a job at the last of these steps."""
    last = max(measured, key=lambda m: m.step)
    told: dict[str, float | int | None] = {"step": last.step, "loss": last.loss}
    of_methods = {name: getattr(last, name) for name in OF_METHODS}
    told |= {name: value for name, value in of_methods.items() if value is not None}
    validated = [m for m in measured if m.valid_loss is not None]
    if validated:
        told["valid_loss"] = max(validated, key=lambda m: m.step).valid_loss
    return {k: _finite(v) for k, v in told.items()}


def _finite(value: float | None) -> float | None:
    """JSON has no other numbers."""
    return value if value is not None and math.isfinite(value) else None


async def _complain(
    conn: AsyncConnection, attempt: AttemptRow, node: str, trouble: Trouble, now: datetime
) -> None:
    """One event when trouble begins and one when it is over, however often a node says so."""
    if trouble.kind in _SAID:
        await _tell(conn, attempt, node, trouble, now)
        return
    over = trouble.until > 0
    code = "checkpoint.caught_up" if over else "checkpoint.delayed"
    data = {"node": node, "kind": trouble.kind, "since": trouble.since}
    if await events.known(conn, attempt.job_id, code, data):
        return
    if await events.are_enough(conn, attempt.job_id, code):
        return
    seconds = round(trouble.until - trouble.since)
    again = f"The trouble that delayed checkpoints is over, after {seconds} s"
    await events.add(
        conn,
        attempt.job_id,
        now,
        code,
        again if over else printable(trouble.message)[:_LONGEST_SENTENCE],
        attempt_id=attempt.id,
        level="info" if over else "warn",
        data=data,
    )


async def _tell(
    conn: AsyncConnection, attempt: AttemptRow, node: str, said: Trouble, now: datetime
) -> None:
    """What a machine does with its last seconds, or what its trainer warns of: once for a job."""
    text, warns = printable(said.message)[:_LONGEST_SENTENCE], said.kind == "training"
    data: dict[str, object] = {"warning": text} if warns else {"node": node, "since": said.since}
    code = _SAID[said.kind]
    told = await events.known(conn, attempt.job_id, code, data)
    if not told and not await events.are_enough(conn, attempt.job_id, code):
        await events.add(
            conn,
            attempt.job_id,
            now,
            code,
            text,
            attempt_id=attempt.id,
            level="warn" if warns else "info",
            data=data,
        )


def printable(text: str) -> str:
    """Replace NUL and surrogates, which PostgreSQL does not store; what a program printed may."""
    return UNSTORABLE.sub("\ufffd", text)


async def live_attempt(conn: AsyncConnection, attempt_id: str) -> AttemptRow:
    """The attempt. Raises Gone when it is over."""
    attempt = await attempts.find(conn, attempt_id)
    if attempt is None or attempt.state in ATTEMPT_OVER:
        raise Gone(OVER)
    return attempt


async def job_of(conn: AsyncConnection, attempt: AttemptRow) -> JobRow:
    """The attempt's job."""
    job = await jobs.find(conn, attempt.job_id)
    assert job is not None, "an attempt has a job: the foreign key says so"
    return job


async def _current(conn: AsyncConnection, attempt_id: str) -> Opened | None:
    return await generations.current(conn, attempt_id)


async def current_number(conn: AsyncConnection, attempt_id: str) -> int:
    """Of the attempt's newest generation; 0 before the first."""
    opened = await _current(conn, attempt_id)
    return opened.generation.number if opened else 0
