"""Find broken checkpoints before a generation opens, so that it loads none of them."""

import logging
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.attempts.attempts import AttemptRow
from service.db.core.leases import Claim
from service.db.storage import checkpoint_fault_reports
from service.db.storage.checkpoint_fault_reports import CheckpointHistory
from service.domain.lifecycle.attempt import MoveAttempt
from service.domain.states import AttemptState, Outcome
from service.domain.storage.checkpoint_faults import (
    CheckpointDoubt,
    CheckpointFault,
    judge_checkpoint,
)
from service.operations.attempts import findings as operations
from service.operations.attempts import heads
from service.storage.store import BlobStore
from trainer.contract import MANIFEST, Committed

_FORGED = CheckpointFault(file=MANIFEST, reason="is another one than HEAD named first")
log = logging.getLogger(__name__)


async def find_broken_checkpoints(
    engine: AsyncEngine,
    store: BlobStore,
    claim: Claim,
    row: AttemptRow,
    history: CheckpointHistory,
    now: datetime,
) -> frozenset[str] | MoveAttempt:
    """Return the paths of broken checkpoints, or a move to other machines for a second report.

    Inspects Blob, because a node could not load a checkpoint, or HEAD names one by another hash
    than at first. The move is returned where only one machine reports the fault. Raises LeaseLost.
    """
    marked = history.broken
    async with engine.connect() as conn:
        reports = await checkpoint_fault_reports.open_of(conn, row.job_id)
    head, _ = await heads.read(store, row.job_id)
    fenced = head.fenced(head.generation, marked)
    forged = heads.find_rewritten(fenced, history.anchors)
    given_up = [(entry, _FORGED) for entry in reversed(forged)]
    doubt: MoveAttempt | None = None
    for entry in (e for e in reversed(fenced.checkpoints) if e not in forged):
        if entry.path not in reports and not given_up:
            break  # no report on the newest
        fault = await operations.find_fault(store, row.job_id, entry)
        verdict = judge_checkpoint(reports.get(entry.path, ()), fault, row.id)
        if isinstance(verdict, CheckpointFault):
            given_up.append((entry, verdict))
            continue
        doubt = _move_to_other_machines(verdict, entry) if verdict else None
        break
    marked |= {entry.path for entry, _ in given_up}
    if given_up:
        async with engine.begin() as conn:
            newest = head.fenced(head.generation, marked).newest
            events = await operations.mark_broken(conn, claim, row, given_up, newest, now)
        for facts in events:
            log.error("checkpoint.broken", extra={"job": row.job_id, "attempt": row.id, **facts})
    return doubt or marked


def _move_to_other_machines(doubt: CheckpointDoubt, entry: Committed) -> MoveAttempt:
    return MoveAttempt(
        to=AttemptState.TERMINATING,
        outcome=Outcome.UNRESPONSIVE,
        reason=f"one machine finds that {doubt.file} of the checkpoint of step {entry.step} "
        f"{doubt.reason}, without a second report: retrying on other machines",
    )
