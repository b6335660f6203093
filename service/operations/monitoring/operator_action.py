"""Request help for faults that a person must fix: one event at the start, one at the end.

The newest of the two events is the state. Each attempt reports a fault that it meets itself.
"""

import logging
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.attempts.attempts import AttemptRow
from service.db.jobs import events
from service.db.jobs.events import Event
from service.domain.lifecycle.attempt import AttemptStep, MoveAttempt
from service.domain.states import ATTEMPT_WITH_NODES, AttemptState
from service.operations.attempts.heads import HeadUnreadable

log = logging.getLogger(__name__)
_STATES_WITHOUT_PROOF = (AttemptState.PROVISIONING, AttemptState.TERMINATING)


@dataclass(frozen=True, kw_only=True)
class ActionRequest:
    """The newest request for help of a job; ``message`` is empty once it is resolved."""

    attempt_id: str | None
    message: str
    about: str  # "azure", "head" or "boot"

    @property
    def is_about_head(self) -> bool:
        """Return whether HEAD cannot be read or fenced."""
        return self.about == "head"


class CannotBoot(Exception):
    """No machine of the attempt can boot until a person fixes what the message says."""


_RESOLVED_MESSAGES = {
    "head": "HEAD can be read again",
    "boot": "Machines boot again",
    "azure": "Azure accepts requests again",
}


def parse_request(newest: Event | None) -> ActionRequest | None:
    """Return the request for help that this event describes; None without an event."""
    if newest is None:
        return None
    is_open = newest.code == "attempt.needs_help"
    return ActionRequest(
        attempt_id=newest.attempt_id,
        message=newest.message if is_open else "",
        about=(newest.data or {}).get("about", "azure"),
    )


def open_message(about: str, attempt_id: str, newest: Event | None) -> str:
    """Return this attempt's open message about ``about``; empty where there is none."""
    request = parse_request(newest)
    matches = request is not None and (request.attempt_id, request.about) == (attempt_id, about)
    return request.message if request and matches else ""


async def request_action(
    conn: AsyncConnection, row: AttemptRow, fault: Exception, now: datetime
) -> None:
    """Add an event that a person must act, and log it for the operator.

    Does nothing where this attempt has an open request about the same fault.
    """
    before = parse_request(await events.newest_of_help(conn, row.job_id))
    about = _fault_subject(fault)
    # One request about HEAD: a node can write a new fault there every second.
    if (
        before
        and before.message
        and before.attempt_id == row.id
        and (before.is_about_head if about == "head" else before.message == str(fault))
    ):
        return
    data = {"about": about}
    await events.add(
        conn,
        row.job_id,
        now,
        "attempt.needs_help",
        str(fault),
        attempt_id=row.id,
        level="error",
        data=data,
    )
    facts = {"job": row.job_id, "attempt": row.id, "cause": str(fault)}
    log.error("attempt.needs_help", extra=facts | data)


def is_resolved(call: ActionRequest | None, row: AttemptRow, step: AttemptStep) -> bool:
    """Return whether ``step``, taken without a fault, proves that the fault is fixed.

    HEAD is read only while there are nodes. An attempt that is only written or given up made no
    request to Azure.
    """
    if call is None or not call.message:
        return False
    if call.is_about_head:
        return row.state in ATTEMPT_WITH_NODES
    if call.about == "boot":
        return row.state is AttemptState.RUNNING
    return not (isinstance(step, MoveAttempt) and step.to in _STATES_WITHOUT_PROOF)


async def resolve_action(
    conn: AsyncConnection, row: AttemptRow, call: ActionRequest, now: datetime
) -> None:
    """Add the event that the fault is fixed."""
    await events.add(
        conn,
        row.job_id,
        now,
        "attempt.help_over",
        _RESOLVED_MESSAGES[call.about],
        attempt_id=row.id,
        data={"about": call.about},
    )


def _fault_subject(fault: Exception) -> str:
    if isinstance(fault, CannotBoot):
        return "boot"
    return "head" if isinstance(fault, HeadUnreadable) else "azure"
