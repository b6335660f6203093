"""Reports of booting machines, before a supervisor runs: events of the job.

Any holder of the bootstrap token may report, so everything is bounded: one event for each phase of
an attempt, one for each failed machine, and a limited number of failures of a job.
"""

from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.attempts.attempts import AttemptRow
from service.db.core import leases
from service.db.jobs import events
from service.db.schema import tables
from service.domain.lifecycle import boot_report
from service.domain.lifecycle.boot_report import BootReport, BootStatus
from service.domain.states import AttemptState
from service.operations.monitoring import operator_action
from service.operations.monitoring.operator_action import CannotBoot
from service.operations.nodes import nodes

_STATES_BEFORE_NODES = (AttemptState.PROVISIONING, AttemptState.STARTING)


async def record(conn: AsyncConnection, attempt_id: str, report: BootReport, now: datetime) -> None:
    """Record a booting machine's report. Raises Gone when its attempt has ended."""
    attempt = await nodes.require_live_attempt(conn, attempt_id)
    is_final = boot_report.is_not_retryable(report) and attempt.state in _STATES_BEFORE_NODES
    if is_final:
        await leases.enqueue(conn, tables.attempts, attempt.id, now)  # before any lock on the job
    if report.status is BootStatus.BEGUN:
        await _record_phase(conn, attempt, report, now)
    else:
        await _record_failure(conn, attempt, report, now)
    if is_final:
        await operator_action.request_action(
            conn, attempt, CannotBoot(boot_report.final_reason(report)), now
        )


async def _record_phase(
    conn: AsyncConnection, attempt: AttemptRow, report: BootReport, now: datetime
) -> None:
    """Add an event for the first machine of the attempt that reaches the phase."""
    facts = {"attempt": attempt.id, "phase": str(report.phase)}
    if not await events.has_event(conn, attempt.job_id, "node.booting", facts):
        message = f"{report.machine} is booting: {report.phase}"
        arguments = (conn, attempt.job_id, now, "node.booting", message)
        await events.add(*arguments, attempt_id=attempt.id, data=facts)


async def _record_failure(
    conn: AsyncConnection, attempt: AttemptRow, report: BootReport, now: datetime
) -> None:
    cause = boot_report.failure_causes(report)[-1].name
    cause_facts = {"phase": str(report.phase), "machine": report.machine, "cause": cause}
    facts = {"attempt": attempt.id, "said": str(report.status), **cause_facts}
    code, job_id = "node.boot_failed", attempt.job_id
    if await events.has_event(conn, job_id, code, facts) or await events.is_limit_reached(
        conn, job_id, code
    ):
        return
    message = boot_report.failure_sentence(report)
    arguments = (conn, job_id, now, code, message)
    await events.add(*arguments, attempt_id=attempt.id, level="warn", data=facts)
