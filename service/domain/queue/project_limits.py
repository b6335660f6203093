"""Default limits of a project, and of the requests of one key."""

from dataclasses import dataclass

REQUESTS_PER_MINUTE = 3000  # of one key, to one process


@dataclass(frozen=True, kw_only=True)
class ProjectLimits:
    """The most that a project may have. The defaults stop a mistake from filling the database."""

    live_jobs: int = 10_000  # that are not over
    files: int = 100_000  # uploads under way included
    bytes: int = 10 * 1024**4  # of these files
    keys: int = 1000  # that are not revoked


DEFAULT_PROJECT_LIMITS = ProjectLimits()
