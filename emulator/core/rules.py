"""Rules as data: what is wrong with something that is asked for, and Azure's answer to it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from emulator.core.errors import ArmError

T = TypeVar("T")


@dataclass(frozen=True)
class Rule(Generic[T]):
    """A refusal: ``breach`` returns what is wrong, or nothing.

    ``words`` has what is wrong as {0}, and what is asked for as {w}.
    """

    breach: Callable[[T], object]
    words: str
    code: str = "InvalidParameter"
    target: str = ""
    status: int = 400


def check_rules(rules: Iterable[Rule[T]], subject: T) -> None:
    """Raise ArmError for the first rule that is broken."""
    for rule in rules:
        if breach := rule.breach(subject):
            message = rule.words.format(breach, w=subject)
            raise ArmError(rule.status, rule.code, message, rule.target)
