"""docs/lifecycle.md, from the tables of the domain."""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import TypeVar

from service.domain.states import (
    ATTEMPT_MOVES,
    JOB_AFTER,
    JOB_MOVES,
    OPENAI_STATUS,
    TIME_LIMITS,
    AttemptState,
    JobState,
)
from tests.repository.sources import ROOT

State = TypeVar("State", bound=StrEnum)
PAGE = ROOT / "docs" / "lifecycle.md"


def page() -> str:
    """Return the whole page."""
    return "\n".join(
        [
            "# Life cycle",
            "",
            "For users who read `phase` and for people who change the service: the states of a job",
            "and of an attempt, and the moves between them.",
            "",
            "![Life of a job](job-life.svg)",
            "",
            "Generated from `service/domain/states.py` by `make docs`; do not edit.",
            "",
            "## Job: what the user waits for",
            "",
            *_diagram(JOB_MOVES, JobState.VALIDATING),
            "",
            *_table(("state", "shown to OpenAI's clients as"), OPENAI_STATUS.items()),
            "",
            "## Attempt: one hold on one scale set",
            "",
            *_diagram(ATTEMPT_MOVES, AttemptState.PENDING),
            "",
            "Once a scale set may exist, every way out leads through `terminating`, which has no",
            "time limit: what still exists still costs money.",
            "",
            *_table(("state", "longest stay", "outcome after that"), _limits()),
            "",
            "An attempt has started once a step is done: `starting` has twice as long as the plan",
            "says that a step takes (P90) in addition.",
            "",
            "## What an attempt's outcome means for the job",
            "",
            *_table(("outcome", "the job"), _verdicts()),
            "",
        ]
    )


def _diagram(moves: Mapping[State, Iterable[State]], first: State) -> Iterator[str]:
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield f"    [*] --> {first}"
    for state, nexts in moves.items():
        for following in sorted(nexts):
            yield f"    {state} --> {following}"
        if not nexts:
            yield f"    {state} --> [*]"
    yield "```"


def _limits() -> Iterator[tuple[str, ...]]:
    for state, (longest, outcome) in TIME_LIMITS.items():
        yield state, f"{longest.total_seconds() / 60:g} minutes", outcome


def _verdicts() -> Iterator[tuple[str, ...]]:
    for outcome, job in JOB_AFTER.items():
        yield outcome, f"becomes `{job}`" if job else "looks for its next attempt"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for first, *others in rows:
        yield f"| {' | '.join([f'`{first}`', *others])} |"
