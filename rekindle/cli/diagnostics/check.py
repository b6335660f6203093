"""One line of `rekindle doctor`: what was looked at, how it is, what to do."""

from dataclasses import asdict, dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How it is."""

    OK = "ok"
    MISSING = "missing"  # what was asked for does not work without it
    DOUBT = "doubt"  # it may work; a person should know
    SKIPPED = "skipped"  # it does not apply here


@dataclass(frozen=True)
class Check:
    """What a check found."""

    name: str
    verdict: Verdict
    found: str
    remedy: str = ""

    def as_dict(self) -> dict[str, str]:
        """The same for a program."""
        return asdict(self) | {"verdict": str(self.verdict)}


def ok(name: str, found: str) -> Check:
    """It is there."""
    return Check(name, Verdict.OK, found)


def missing(name: str, found: str, remedy: str) -> Check:
    """It is not there."""
    return Check(name, Verdict.MISSING, found, remedy)


def doubt(name: str, found: str, remedy: str) -> Check:
    """It could be better, or cannot be known from here."""
    return Check(name, Verdict.DOUBT, found, remedy)


def skipped(name: str, why: str) -> Check:
    """It was not looked at."""
    return Check(name, Verdict.SKIPPED, why)
