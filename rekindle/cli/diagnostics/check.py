"""One result of `rekindle doctor`: what was checked, its state, and the remedy."""

from dataclasses import asdict, dataclass
from enum import StrEnum


class CheckStatus(StrEnum):
    """State of what was checked."""

    OK = "ok"
    MISSING = "missing"  # required, and absent or broken
    DOUBT = "doubt"  # possibly wrong, or cannot be checked from here
    SKIPPED = "skipped"  # does not apply here


@dataclass(frozen=True)
class CheckResult:
    """Result of one check."""

    name: str
    verdict: CheckStatus
    found: str
    remedy: str = ""

    def as_dict(self) -> dict[str, str]:
        """Return the result as JSON output."""
        return asdict(self) | {"verdict": str(self.verdict)}


def passed_check(name: str, finding: str) -> CheckResult:
    """Return a passed check."""
    return CheckResult(name, CheckStatus.OK, finding)


def failed_check(name: str, finding: str, remedy: str) -> CheckResult:
    """Return a failed check with its remedy."""
    return CheckResult(name, CheckStatus.MISSING, finding, remedy)


def doubtful_check(name: str, finding: str, remedy: str) -> CheckResult:
    """Return a check with a possible problem and its remedy."""
    return CheckResult(name, CheckStatus.DOUBT, finding, remedy)


def skipped_check(name: str, why: str) -> CheckResult:
    """Return a check that was not made, with the reason."""
    return CheckResult(name, CheckStatus.SKIPPED, why)
