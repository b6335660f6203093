"""Rare parts of heartbeats: times, troubles, failed loads of checkpoints, unhealthy machines."""

import logging
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.attempts import nodes
from service.db.attempts.heartbeats import LockedNode
from service.db.jobs import events
from service.db.storage import checkpoint_fault_reports
from service.domain.storage.checkpoint_faults import CheckpointFinding
from service.instruments import NODES_UNHEALTHY
from service.operations.nodes.nodes import find_generation, storable_text
from trainer.contract import Heartbeat, Trouble

log = logging.getLogger(__name__)
_MAX_TEXT_LENGTH = 400  # characters of a node's text within a sentence
_MAX_TROUBLE_LENGTH = 4000  # characters of a trouble


def has_reports(heartbeat: Heartbeat) -> bool:
    """Return whether `record_reports` has something to write."""
    return bool(heartbeat.spans or heartbeat.troubles or heartbeat.broken or heartbeat.unhealthy)


async def record_reports(
    conn: AsyncConnection, locked_node: LockedNode, heartbeat: Heartbeat, now: datetime
) -> None:
    """Write the reports with their events. The caller has locked the node and its job."""
    if heartbeat.unhealthy and not locked_node.record.unhealthy_at:
        await _record_unhealthy(conn, locked_node, storable_text(heartbeat.unhealthy), now)
    spans = [span.to_plain() for span in heartbeat.spans]
    added = await nodes.add_spans(conn, locked_node.record.node_id, spans)
    await _record_finding(conn, locked_node, heartbeat)
    if any(span["name"] == "load" for span in added):
        await _record_loading(conn, locked_node, heartbeat, now)
    for trouble in heartbeat.troubles:
        await _record_trouble(conn, locked_node, trouble, now)


async def _record_unhealthy(
    conn: AsyncConnection, locked_node: LockedNode, reason: str, now: datetime
) -> None:
    """Add an event that names the unhealthy instance, for the user and Azure's support."""
    node = locked_node.record
    instance = await nodes.name_of(conn, node.node_id)
    facts = {"node": node.node_id, "vm_id": node.vm_id, "instance": instance}
    log.warning("node.unhealthy", extra={"attempt": node.attempt_id, **facts})
    NODES_UNHEALTHY.add()
    await events.add(
        conn,
        locked_node.job_id,
        now,
        "node.unhealthy",
        f"Instance {instance} of attempt {locked_node.attempt_number} is unhealthy and is deleted:"
        f" {reason[:_MAX_TROUBLE_LENGTH]}",
        attempt_id=node.attempt_id,
        level="warn",
        data=facts,
    )


async def _record_finding(
    conn: AsyncConnection, locked_node: LockedNode, heartbeat: Heartbeat
) -> None:
    """Record that a node could not load its generation's checkpoint."""
    broken, node = heartbeat.broken, locked_node.record
    if broken is None:
        return
    generation = await find_generation(conn, node.attempt_id, heartbeat.generation)
    checkpoint = generation.checkpoint if generation else None
    if checkpoint is None or checkpoint.path != broken.path:
        return
    finding = CheckpointFinding(
        node_id=node.node_id,
        attempt_id=node.attempt_id,
        generation=heartbeat.generation,
        file=storable_text(broken.file)[:_MAX_TEXT_LENGTH],
        reason=storable_text(broken.reason)[:_MAX_TEXT_LENGTH],
    )
    await checkpoint_fault_reports.add(conn, locked_node.job_id, broken.path, finding)


async def _record_loading(
    conn: AsyncConnection, locked_node: LockedNode, heartbeat: Heartbeat, now: datetime
) -> None:
    """Add an event when a generation begins its first step, as its first node reports it."""
    node = locked_node.record
    generation = await find_generation(conn, node.attempt_id, heartbeat.generation)
    if generation and generation.members[0].node_id == node.node_id:
        number = locked_node.attempt_number
        message = f"Attempt {number}: the model is loaded, and the first step is running"
        await events.add(
            conn, locked_node.job_id, now, "generation.loaded", message, attempt_id=node.attempt_id
        )


async def _record_trouble(
    conn: AsyncConnection, locked_node: LockedNode, trouble: Trouble, now: datetime
) -> None:
    """Add one event when a trouble begins and one when it ends, however often nodes report it."""
    node = locked_node.record
    code, level, text, data = _trouble_event(trouble, node.node_id)
    if await events.has_event(conn, locked_node.job_id, code, data):
        return
    if await events.is_limit_reached(conn, locked_node.job_id, code):
        return
    await events.add(
        conn,
        locked_node.job_id,
        now,
        code,
        text,
        attempt_id=node.attempt_id,
        level=level,
        data=data,
    )


def _trouble_event(trouble: Trouble, node: str) -> tuple[str, str, str, dict[str, object]]:
    """Return the event's code, level, message and data."""
    text = storable_text(trouble.message)[:_MAX_TROUBLE_LENGTH]
    data: dict[str, object] = {"node": node, "since": trouble.since}
    if trouble.kind == "notice":  # what the machine did after an eviction notice
        return "eviction.answered", "info", text, data
    if trouble.kind == "training":  # a warning of the trainer: once for a job
        return "training.warned", "warn", text, {"warning": text}
    data["kind"] = trouble.kind
    if not trouble.until:
        return "checkpoint.delayed", "warn", text, data
    seconds = round(trouble.until - trouble.since)
    message = f"The trouble that delayed checkpoints is over, after {seconds} s"
    return "checkpoint.caught_up", "info", message, data
