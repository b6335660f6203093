"""Bounds of what a message may hold, as annotations of its members. Standard library only.

Nodes, and whoever has their SAS, write heartbeats, HEAD and manifests. The service decodes all of
it, keeps it in PostgreSQL and calculates with it, so each member says what it may be:

>>> Share = Annotated[float, Range(0, 1)]

`trainer/contract/wire.py` checks the bounds before it decodes what they stand at.
"""

import math
import re
from dataclasses import dataclass
from typing import Annotated, Protocol

UNSTORABLE = re.compile("[\0\ud800-\udfff]")  # what PostgreSQL keeps in no text


class Bound(Protocol):
    """What a value must hold to be taken."""

    def fault(self, value: object) -> str:
        """What is wrong with it; "" if nothing is, or if it is of another type."""
        ...


@dataclass(frozen=True)
class TextBound:
    """A text of at most ``most`` characters.

    ``raw``: it may hold NUL and lone surrogates, as what a program prints does.
    """

    most: int
    raw: bool = False

    def fault(self, value: object) -> str:
        """See the class."""
        if not isinstance(value, str):
            return ""
        if len(value) > self.most:
            return f"{len(value)} characters; at most {self.most} are allowed"
        if not self.raw and UNSTORABLE.search(value):
            return "it holds NUL or a lone surrogate"
        return ""


@dataclass(frozen=True)
class PatternBound:
    """A text that is wholly matched by ``regex``, which allows no backtracking to speak of."""

    regex: str
    flags: int = re.ASCII

    def fault(self, value: object) -> str:
        """See the class."""
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
        """See the class. Numbers of any size are compared exactly."""
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
        """See the class."""
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
