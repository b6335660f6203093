"""A distillation in passes over the prompt file: read, ask, grade, write.

Between passes all state is in the reply cache, so memory holds no answers and the output depends
only on the prompts and the cache, however often the run was interrupted.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from rekindle.cli.distil import judge
from rekindle.cli.distil.prompts import ANSWER, TeacherPrompt, UnusablePrompt, prompts
from rekindle.cli.distil.rows import RowKind, made, useful
from rekindle.cli.distil.tally import DistilTally
from rekindle.cli.distil.teacher import Teacher
from rekindle.cli.distil.teacher_messages import TeacherReply, TeacherRequest
from rekindle.cli.distil.teacher_pool import Seen, TeacherPool
from rekindle.cli.errors import CliError, ExitCode
from rekindle.cli.output_file import partial_file

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class DistilSettings:
    """Validated options of a distillation."""

    file: Path
    out: Path
    kind: RowKind
    url: str
    teacher: str
    candidates: int
    sampling: Json
    judge: str | None = None  # model that grades answers; None: no judge
    judge_sampling: Json | None = None
    grader: Json | None = None


class Distillation:
    """One run of `rekindle distil`."""

    def __init__(
        self, wanted: DistilSettings, pool: TeacherPool, connect: Callable[[], Teacher]
    ) -> None:
        self.wanted, self.pool, self._connect = wanted, pool, connect
        self.tally, self.rows = DistilTally(), 0

    def gather(self, seen: Seen) -> None:
        """Ask the teacher for all candidates of every prompt."""
        self.pool.ask(self._asks(), self._connect(), seen)

    def rate(self, seen: Seen) -> None:
        """Ask the judge to grade every candidate, if there is a judge."""
        if self.wanted.judge is not None:
            self.pool.ask(self._questions(), self._connect(), seen)

    def write(self) -> None:
        """Write the whole file or nothing; raise CliError if there is no row."""
        with partial_file(self.wanted.out) as part:
            with part.open("w", encoding="utf-8") as lines:
                for row in self._rows():
                    lines.write(json.dumps(row, ensure_ascii=False) + "\n")
                    self.rows += 1
            if not self.rows:
                raise self._nothing()

    def _prompts(self, tally: DistilTally | None = None) -> Iterator[TeacherPrompt]:
        return prompts(self.wanted.file, tally or DistilTally())

    def _ask(self, prompt: TeacherPrompt, number: int) -> TeacherRequest:
        wanted = self.wanted
        return TeacherRequest(
            url=wanted.url,
            model=wanted.teacher,
            messages=prompt.messages,
            sampling=wanted.sampling,
            number=number,
        )

    def _asks(self) -> Iterator[TeacherRequest]:
        for prompt in self._prompts():
            for number in range(self.wanted.candidates):
                yield self._ask(prompt, number)

    def _question(self, prompt: TeacherPrompt, text: str) -> TeacherRequest:
        return TeacherRequest(
            url=self.wanted.url,
            model=self.wanted.judge or "",
            messages=judge.question(prompt.messages, text),
            sampling=self.wanted.judge_sampling or {},
        )

    def _questions(self) -> Iterator[TeacherRequest]:
        for prompt in self._prompts():
            for text in self._texts(prompt, DistilTally()):
                yield self._question(prompt, text)

    def _texts(self, prompt: TeacherPrompt, tally: DistilTally) -> list[str]:
        """Return the prompt's usable candidates."""
        asks = [self._ask(prompt, number) for number in range(self.wanted.candidates)]
        return useful([self._said(ask) for ask in asks], tally)

    def _said(self, ask: TeacherRequest) -> TeacherReply | str:
        reply = self.pool.replies.get(ask.key)
        return self.pool.refused.get(ask.key, "it was not requested") if reply is None else reply

    def _rows(self) -> Iterator[Json]:
        grader = self.wanted.grader
        exact = grader == judge.EXACT
        given = self._given(grader) if grader else iter(())
        for prompt in self._prompts(self.tally):
            texts = self._texts(prompt, self.tally)
            if grader:
                graded = list(zip(texts, islice(given, len(texts)), strict=True))
            else:
                graded = [(text, self._number(prompt, text)) for text in texts]
            try:
                yield from made(self.wanted.kind, prompt, self._rated(graded), exact=exact)
            except UnusablePrompt as why:
                self.tally.skipped.add(prompt.line, str(why))

    def _rated(self, graded: list[tuple[str, float | None]]) -> list[tuple[str, float | None]]:
        """Drop candidates without a grade, if there is a judge or grader."""
        if self.wanted.grader is None and self.wanted.judge is None:
            return graded
        for _, grade in graded:
            if grade is None:
                by = "the grader failed" if self.wanted.grader else "the judge returned no number"
                self.tally.drop(by)
        return [(text, grade) for text, grade in graded if grade is not None]

    def _number(self, prompt: TeacherPrompt, text: str) -> float | None:
        if self.wanted.judge is None:
            return None
        said = self._said(self._question(prompt, text))
        return judge.number(said.text) if isinstance(said, TeacherReply) else None

    def _given(self, grader: Json) -> Iterator[float | None]:
        """Return the grades of all candidates, in order."""
        pairs = (
            (prompt.item, text)
            for prompt in self._prompts()
            for text in self._texts(prompt, DistilTally())
        )
        return iter(judge.grades(grader, pairs))

    def _nothing(self) -> CliError:
        why = [*self.tally.told()]
        return CliError(
            f"No row could be made from {self.wanted.file}. {'. '.join(why)}.",
            "Raise --candidates or --temperature to get answers that differ.",
            code="nothing_distilled",
        )


@dataclass(frozen=True)
class PromptCounts:
    """Number of prompts in a file, and of those with a reference answer."""

    prompts: int
    answered: int  # prompts with a reference answer


def look(file: Path) -> PromptCounts:
    """Count the prompts before anything is paid for; raise CliError if there are none."""
    tally, total, answered = DistilTally(), 0, 0
    for prompt in prompts(file, tally):
        total += 1
        answered += prompt.item.get(ANSWER) is not None
    if not total:
        why = "; ".join(tally.skipped.reasons()) or "it has no rows"
        raise CliError(
            f"{file} has no prompt: {why}.",
            "A row needs `messages` that end before the answer, or a `prompt`.",
            exit_code=ExitCode.USAGE,
            code="no_prompts",
        )
    return PromptCounts(total, answered)
