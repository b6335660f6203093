"""Handle deadlines that Spot would miss: apply the user's choice, once."""

from dataclasses import replace
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from contract.choices import OnRisk
from service.db.core.leases import Claim
from service.db.jobs import events, jobs
from service.db.jobs.jobs import JobRow
from service.domain.placement.policy_state import Decision, DecisionKind

_STAY_MESSAGE = "The job stays on Spot; a later deadline or more nodes would help."
_NOTIFY_MESSAGE = "The job stays on Spot because on_deadline_risk is notify."
_CANCEL_MESSAGE = "The job is cancelled because on_deadline_risk is cancel."
_MOVE_MESSAGE = "The job saves a checkpoint and moves there."


def should_move(row: JobRow, risk: Decision) -> bool:
    """Return whether the risk moves the job from Spot to machines that are available."""
    policy = row.constraints.on_deadline_risk
    return policy is OnRisk.SWITCH and risk.candidate is not None


def can_return_to_spot(row: JobRow) -> bool:
    """Return whether the job may return to Spot, which it may once."""
    policy = row.constraints.on_deadline_risk
    return policy is OnRisk.SWITCH and row.returns_since is None


def stay_without_budget(risk: Decision, reason: str) -> Decision:
    """Return the decision to stay because the budget does not cover the move."""
    message = f"{risk.why} {risk.candidate} would meet it, but: {reason}."
    return replace(risk, kind=DecisionKind.STAY, candidate=None, why=message)


async def return_to_spot(
    conn: AsyncConnection, claim: Claim, row: JobRow, decision: Decision, now: datetime
) -> None:
    """Have the job save a checkpoint, leave on-demand machines and request Spot.

    A new risk for the deadline is handled again. Raises LeaseLost where the job has had a request
    since it was claimed.
    """
    await jobs.request_if_unchanged(conn, claim, now, returns_since=now, at_risk_at=None)
    data = {"figures": decision.figures, "to": str(decision.candidate)}
    text = f"Spot is cheaper again. {decision.why} {_MOVE_MESSAGE}"
    await events.add(conn, row.id, now, "job.back_to_spot", text, data=data)


async def record_missed_deadline(
    conn: AsyncConnection, claim: Claim, row: JobRow, now: datetime
) -> bool:
    """Add an event that the deadline has passed, once for each deadline; return True if it is new.

    Raises LeaseLost where the job has had a request since it was claimed.
    """
    deadline = row.constraints.deadline
    assert deadline is not None, "the caller checked that it has passed"
    data = {"deadline": int(deadline.timestamp())}
    if await events.has_event(conn, row.id, "job.deadline_passed", data):
        return False
    await jobs.request_if_unchanged(conn, claim, now)
    text = (
        f"The deadline ({deadline:%Y-%m-%d %H:%M} UTC) has passed, and the job is not done. A "
        "deadline does not stop a job: cancel it, or set another deadline."
    )
    await events.add(conn, row.id, now, "job.deadline_passed", text, level="warn", data=data)
    return True


async def handle_risk(
    conn: AsyncConnection, claim: Claim, row: JobRow, risk: Decision, now: datetime
) -> None:
    """Add an event that the deadline is at risk, and apply the job's ``on_deadline_risk``.

    Called once for the same terms: another risk does not undo a switch. Locks the attempts before
    the job. Raises LeaseLost as ``return_to_spot`` does.
    """
    policy = row.constraints.on_deadline_risk
    columns: dict[str, datetime] = {"at_risk_at": now}
    if policy is OnRisk.CANCEL:
        columns["cancel_requested_at"] = now
        text = _CANCEL_MESSAGE
    elif policy is OnRisk.NOTIFY:
        text = _NOTIFY_MESSAGE
    elif risk.candidate is None:
        text = _STAY_MESSAGE
    else:
        columns["moves_since"] = now
        text = _MOVE_MESSAGE
    await jobs.request_if_unchanged(conn, claim, now, **columns)
    data = {"figures": risk.figures, "to": str(risk.candidate) if risk.candidate else None}
    message = f"The deadline is at risk. {risk.why} {text}"
    await events.add(conn, row.id, now, "job.deadline_at_risk", message, level="warn", data=data)
