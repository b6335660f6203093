"""What booting machines report, before any supervisor runs: events of the job.

Whoever has the bootstrap token may report, so all of it is bounded: each phase of an attempt is
told once, each failure of a machine once, and of all failures of a job a number.
"""

from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.attempts.attempts import AttemptRow
from service.db.core import leases
from service.db.jobs import events
from service.db.schema import tables
from service.domain.lifecycle import boot_report
from service.domain.lifecycle.boot_report import Report, Said
from service.domain.states import AttemptState
from service.operations import help_wanted, nodes
from service.operations.help_wanted import CannotBoot

_NO_NODES_YET = (AttemptState.PROVISIONING, AttemptState.STARTING)


async def record(conn: AsyncConnection, attempt_id: str, report: Report, now: datetime) -> None:
    """Write down what a booting machine says. Raises Gone when its attempt is over."""
    attempt = await nodes.live_attempt(conn, attempt_id)
    ends = boot_report.is_hopeless(report) and attempt.state in _NO_NODES_YET
    if ends:
        await leases.hint(conn, tables.attempts, attempt.id, now)  # before any lock on the job
    if report.said is Said.BEGUN:
        await _tell_phase(conn, attempt, report, now)
    else:
        await _tell_failure(conn, attempt, report, now)
    if ends:
        await help_wanted.call(conn, attempt, CannotBoot(boot_report.last_word(report)), now)


async def _tell_phase(
    conn: AsyncConnection, attempt: AttemptRow, report: Report, now: datetime
) -> None:
    """Of the first machine that comes to it: one of many says where a boot hangs."""
    facts = {"attempt": attempt.id, "phase": str(report.phase)}
    if not await events.known(conn, attempt.job_id, "node.booting", facts):
        message = f"{report.machine} is booting: {report.phase}"
        given = (conn, attempt.job_id, now, "node.booting", message)
        await events.add(*given, attempt_id=attempt.id, data=facts)


async def _tell_failure(
    conn: AsyncConnection, attempt: AttemptRow, report: Report, now: datetime
) -> None:
    cause = boot_report.causes(report)[-1].name
    told = {"phase": str(report.phase), "machine": report.machine, "cause": cause}
    facts = {"attempt": attempt.id, "said": str(report.said), **told}
    code, job_id = "node.boot_failed", attempt.job_id
    if await events.known(conn, job_id, code, facts) or await events.are_enough(conn, job_id, code):
        return
    message = boot_report.sentence(report)
    given = (conn, job_id, now, code, message)
    await events.add(*given, attempt_id=attempt.id, level="warn", data=facts)
