"""The service's side of the node protocol: the node, its attempt and its job."""

from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.attempts import attempts, generations, nodes
from service.db.attempts.attempts import AttemptRow
from service.db.attempts.generations import OpenedGeneration
from service.db.jobs import jobs
from service.db.jobs.jobs import JobRow
from service.domain.errors import Gone, NodeNotFound, StaleEpoch
from service.domain.lifecycle.node import NodeRecord
from service.domain.states import ATTEMPT_WITH_OUTCOME
from trainer.contract import UNSTORABLE, Generation

ATTEMPT_IS_OVER = "The attempt is over. Stop this node."


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A node with the attempt and job it works for."""

    node: NodeRecord
    attempt: AttemptRow
    job: JobRow
    registered_at: float = 0.0  # unix seconds of the last fresh registration
    was_known: bool = False  # it has registered before


async def find_standing(conn: AsyncConnection, node: str) -> Standing:
    """Return the node with its attempt and job. Raises Gone and NodeNotFound."""
    record = await nodes.find(conn, node)
    if record is None:
        raise NodeNotFound(f"No node {node:.80}. Register first.")
    attempt = await require_live_attempt(conn, record.attempt_id)
    return Standing(
        node=record,
        attempt=attempt,
        job=await find_job(conn, attempt),
        registered_at=await nodes.registered_at(conn, node),
    )


async def find_generation(conn: AsyncConnection, attempt_id: str, number: int) -> Generation | None:
    """Return the attempt's newest generation if it has this number."""
    opened = await _current_generation(conn, attempt_id)
    return opened.generation if opened and opened.generation.number == number else None


def stale_boot_error() -> StaleEpoch:
    """Return the error for a boot of a VM that has booted again since."""
    return StaleEpoch("Another boot of this VM has registered since. Register again.")


def storable_text(text: str) -> str:
    """Replace NUL and surrogates, which PostgreSQL cannot store."""
    return UNSTORABLE.sub("\ufffd", text)


async def require_live_attempt(conn: AsyncConnection, attempt_id: str) -> AttemptRow:
    """Return the attempt, or raise Gone when it has ended."""
    attempt = await attempts.find(conn, attempt_id)
    if attempt is None or attempt.state in ATTEMPT_WITH_OUTCOME:
        raise Gone(ATTEMPT_IS_OVER)
    return attempt


async def find_job(conn: AsyncConnection, attempt: AttemptRow) -> JobRow:
    """Return the attempt's job."""
    job = await jobs.find(conn, attempt.job_id)
    assert job is not None, "an attempt has a job: the foreign key says so"
    return job


async def _current_generation(conn: AsyncConnection, attempt_id: str) -> OpenedGeneration | None:
    return await generations.current(conn, attempt_id)


async def current_number(conn: AsyncConnection, attempt_id: str) -> int:
    """Return the number of the attempt's newest generation; 0 before the first."""
    opened = await _current_generation(conn, attempt_id)
    return opened.generation.number if opened else 0
