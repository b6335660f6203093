"""The simulated world's Blob Storage and its wire.

Blob is strongly consistent and knows If-Match and If-None-Match. The wire loses, doubles and
reorders requests and answers alike; a request may arrive long after its sender has died.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from tests.unit.contract_judge import Judge
from trainer.contract import HEAD, Head


class Process(Protocol):
    """Whoever sends: answers reach it only while it lives."""

    alive: bool


class Blob:
    """One job's container. Values are kept as they are; ETags are never used twice."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.blobs: dict[str, tuple[str, Any]] = {}
        self.writes = 0
        self.put(HEAD, Head(generation=0), if_none_match=True)

    def read(self, name: str) -> tuple[str, Any] | None:
        """ETag and value, or None."""
        return self.blobs.get(name)

    def head(self) -> tuple[str, Head]:
        """ETag and value of HEAD."""
        return self.blobs[HEAD]

    def put(
        self, name: str, value: object, *, if_match: str = "", if_none_match: bool = False
    ) -> bool:
        """Write the whole blob; False is 412 Precondition Failed."""
        there = self.blobs.get(name)
        if if_none_match and there:
            return False
        if if_match and (there is None or there[0] != if_match):
            return False
        if name == HEAD and there and isinstance(value, Head):
            self.judge.head_written(there[1], value, self)
        self.writes += 1
        self.blobs[name] = (f"e{self.writes}", value)
        return True

    def delete_folder(self, path: str) -> None:
        """Delete every blob under a folder."""
        for name in [n for n in self.blobs if n.startswith(path + "/")]:
            del self.blobs[name]


@dataclass(eq=False)
class Call:
    """A request on its way; ``answered`` is called with each answer that arrives."""

    sender: Process
    run: Callable[[], Any]
    answered: Callable[[Any], None]


@dataclass(eq=False)
class Wire:
    """A bag of requests and answers under way."""

    rng: Random
    faulty: bool = True
    requests: list[Call] = field(default_factory=list)
    answers: list[tuple[Call, Any]] = field(default_factory=list)

    def send(
        self, sender: Process, run: Callable[[], Any], answered: Callable[[Any], None]
    ) -> None:
        """Put a request on the wire."""
        self.requests.append(Call(sender, run, answered))

    def deliver(self) -> None:
        """Deliver, double or lose one message of the bag."""
        waiting = len(self.requests) + len(self.answers)
        if not waiting:
            return
        at = int(self.rng.random() * waiting) if self.faulty else 0
        fate = self.rng.random() if self.faulty else 1.0
        if at < len(self.requests):
            self._request(at, fate)
        else:
            self._answer(at - len(self.requests), fate)

    def _request(self, at: int, fate: float) -> None:
        call = self.requests[at] if fate < 0.1 else self.requests.pop(at)  # below 0.1: doubled
        if not 0.1 <= fate < 0.17:  # lost
            self.answers.append((call, call.run()))

    def _answer(self, at: int, fate: float) -> None:
        call, answer = self.answers[at] if fate < 0.1 else self.answers.pop(at)
        if call.sender.alive and not 0.1 <= fate < 0.17:
            call.answered(answer)


def asked(
    wire: Wire, sender: Process, run: Callable[[], bool], patience: int
) -> Generator[None, None, bool]:
    """Send one write to Blob and wait; True once any answer, 412 too, has come."""
    answers: list[bool] = []
    wire.send(sender, run, answers.append)
    while not answers and patience > 0:
        patience -= 1
        yield
    return bool(answers)
