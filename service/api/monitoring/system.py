"""/v1/organization/system: the state of the service, for operators. Makes no call to Azure."""

from collections.abc import Sequence
from datetime import datetime

from fastapi import APIRouter
from sqlalchemy import RowMapping

from service.api.deps import Db, Now, Operator, Parts, PartsDep
from service.api.jobs.job_views import seconds
from service.api.schemas import system as shown
from service.api.schemas.system import System
from service.db.core.replicas import Replica
from service.db.monitoring import service_status
from service.operations.core.release import release

router = APIRouter(prefix="/organization", tags=["Organization"])


@router.get("/system", operation_id="retrieveSystem")
async def get_system(parts: PartsDep, db: Db, caller: Operator, now: Now) -> System:
    """Show overdue work, leases, readings of Azure, rate limits, and jobs that need help."""
    rows = await service_status.read_status(db, now)
    turns = [_turn(row, now) for row in rows.turns]
    return System(
        replicas=[_connected(replica, turns) for replica in rows.replicas],
        this_replica=_replica(parts),
        work=[_work(row, now) for row in rows.work],
        turns=turns,
        readings=[_reading(row, now) for row in rows.azure_reads],
        rate_budgets=[
            shown.RateBudget(
                region=row["region"], request=row["kind"], left=row["tokens"], at=seconds(row["at"])
            )
            for row in rows.tokens
        ],
        circuits=[
            shown.Circuit(
                region=row["region"],
                failures=row["failures"],
                closed_until=seconds(row["shut_until"]),
            )
            for row in rows.circuits
        ],
        help_wanted=[_help(row) for row in rows.help_wanted],
        schema_revision=rows.schema,
        postgres_version=rows.postgres,
        as_of=seconds(now),
    )


def _replica(parts: Parts) -> shown.ThisReplica:
    late = parts.liveness.late_loops() if parts.liveness else []
    return shown.ThisReplica(
        version=release(),
        name=parts.listener.name,
        runs_loops=parts.liveness is not None and parts.liveness.has_loops,
        late_loops=late,
        hears_notices=parts.listener.is_connected,
    )


def _connected(replica: Replica, turns: Sequence[shown.Turn]) -> shown.Replica:
    led_turns = [turn.what for turn in turns if turn.is_held and turn.holder == replica.name]
    return shown.Replica(
        name=replica.name,
        command=replica.command,
        version=replica.release,
        connected_at=seconds(replica.connected_at),
        leads=led_turns,
    )


def _work(row: RowMapping, now: datetime) -> shown.Work:
    lag = _lag(row["oldest_due_at"], now)
    return shown.Work(name=row["name"], due=row["due"], lag_seconds=lag, leased=row["leased"])


def _turn(row: RowMapping, now: datetime) -> shown.Turn:
    ends_at = row["ends_at"]
    return shown.Turn(
        what=row["what"], holder=row["holder"], ends_at=seconds(ends_at), is_held=ends_at > now
    )


def _reading(row: RowMapping, now: datetime) -> shown.Reading:
    return shown.Reading(
        what=row["what"],
        read_at=seconds(row["read_at"]),
        due_at=seconds(row["due_at"]),
        lag_seconds=_lag(row["due_at"], now),
        trouble=row["trouble"] or None,
        trouble_at=seconds(row["trouble_at"]),
    )


def _help(row: RowMapping) -> shown.HelpWanted:
    return shown.HelpWanted(
        job=row["job_id"],
        job_name=row["name"],
        project=row["project_id"],
        attempt=row["attempt_id"],
        since=seconds(row["at"]),
        message=row["message"],
    )


def _lag(due_at: datetime | None, now: datetime) -> float:
    return 0.0 if due_at is None else max((now - due_at).total_seconds(), 0.0)
