"""Bounds of the members of messages, as annotations. Standard library only.

Nodes, and anyone who has their SAS, write heartbeats, HEAD and manifests. The service decodes them,
stores them in PostgreSQL and calculates with them, so each member states its bounds:

>>> Share = Annotated[float, RangeBound(0, 1)]

`trainer/contract/wire.py` checks the bounds before it decodes a value.
"""

import math
import re
from dataclasses import dataclass
from typing import Annotated, Protocol

UNSTORABLE = re.compile("[\0\ud800-\udfff]")  # what PostgreSQL keeps in no text


class Bound(Protocol):
    """A condition on a value."""

    def fault(self, value: object) -> str:
        """Return what is wrong with the value; "" if nothing is, or if it has another type."""
        ...


@dataclass(frozen=True)
class TextBound:
    """A text of at most ``most`` characters.

    ``raw``: NUL and lone surrogates are allowed, as in the output of a program.
    """

    most: int
    raw: bool = False

    def fault(self, value: object) -> str:
        """Return what is wrong; see `Bound`."""
        if not isinstance(value, str):
            return ""
        if len(value) > self.most:
            return f"{len(value)} characters; at most {self.most} are allowed"
        if not self.raw and UNSTORABLE.search(value):
            return "it holds NUL or a lone surrogate"
        return ""


@dataclass(frozen=True)
class PatternBound:
    """A text that ``regex`` matches as a whole; keep it free of backtracking."""

    regex: str
    flags: int = re.ASCII

    def fault(self, value: object) -> str:
        """Return what is wrong; see `Bound`."""
        if not isinstance(value, str) or re.compile(self.regex, self.flags).fullmatch(value):
            return ""
        return f"{value[:80]!a} is not of the form {self.regex}"


@dataclass(frozen=True)
class RangeBound:
    """A number from ``least`` to ``most``; ``measured``: also NaN and the infinities."""

    least: float
    most: float
    measured: bool = False

    def fault(self, value: object) -> str:
        """Return what is wrong; see `Bound`. Numbers of any size are compared exactly."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return ""
        if self.measured and isinstance(value, float) and not math.isfinite(value):
            return ""
        if self.least <= value <= self.most:  # false for NaN
            return ""
        return f"{value!r:.40} is not between {self.least} and {self.most}"


@dataclass(frozen=True)
class CountBound:
    """A list, or an object, of at most ``most`` members."""

    most: int

    def fault(self, value: object) -> str:
        """Return what is wrong; see `Bound`."""
        if isinstance(value, list | tuple | dict) and len(value) > self.most:
            return f"{len(value)} members; at most {self.most} are allowed"
        return ""


_LARGEST = 1.7e308  # no sum of two is beyond it by accident
_CENTURIES = 2.0**33  # seconds; the sum of two is a date that Python knows

ANY_NUMBER = RangeBound(-_LARGEST, _LARGEST)
ANY_INTEGER = RangeBound(-(2**63), 2**63 - 1)  # PostgreSQL's bigint

Name = Annotated[str, TextBound(255)]
Prose = Annotated[str, TextBound(128 * 1024, raw=True)]  # what a program printed, or a sentence
Sha256 = Annotated[str, TextBound(64)]  # in hex
Folder = Annotated[str, PatternBound("(checkpoints|models)/step-[0-9]{1,10}-[0-9A-Za-z_-]{1,64}")]
Int = Annotated[int, RangeBound(0, 2**31 - 1)]  # PostgreSQL's integer
Bytes = Annotated[int, RangeBound(0, 2**53)]
Moment = Annotated[float, RangeBound(-_CENTURIES, _CENTURIES)]  # unix seconds, by whatever clock
Seconds = Annotated[float, RangeBound(0, 1e9)]
Measured = Annotated[float, RangeBound(-_LARGEST, _LARGEST, measured=True)]
_PART = "(?!\\.{1,2}(/|$))[^/\\\\\\x00-\\x1f\\x7f]+"
FileName = Annotated[str, TextBound(255), PatternBound(f"{_PART}(/{_PART})*", 0)]  # below a folder
