"""How much a project may have, and a key may send, unless the operator says otherwise."""

from dataclasses import dataclass

REQUESTS_PER_MINUTE = 3000  # of one key, to one process


@dataclass(frozen=True, kw_only=True)
class ProjectLimits:
    """What a project may have at most. The defaults keep a mistake from filling the database."""

    live_jobs: int = 10_000  # that are not over
    files: int = 100_000  # uploads under way included
    bytes: int = 10 * 1024**4  # of these files
    keys: int = 1000  # that are not revoked


USUAL_LIMITS = ProjectLimits()
