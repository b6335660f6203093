"""A distillation, pass by pass over the file of prompts: look, ask, grade, write.

Between two passes everything lies in the file of replies, so memory holds no answers, and what is
written depends on the prompts and on that file alone, however often it was interrupted.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from rekindle.cli.distil import judge
from rekindle.cli.distil.prompts import ANSWER, Prompt, Unfit, prompts
from rekindle.cli.distil.rows import Kind, made, useful
from rekindle.cli.distil.tally import Tally
from rekindle.cli.distil.teacher import Teacher
from rekindle.cli.distil.teacher_messages import Ask, Reply
from rekindle.cli.distil.teacher_pool import Pool, Seen
from rekindle.cli.errors import ExitCode, Trouble

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What the command line asks for."""

    file: Path
    out: Path
    kind: Kind
    url: str
    teacher: str
    candidates: int
    sampling: Json
    judge: str | None = None  # who gives numbers; None: nobody
    judge_sampling: Json | None = None
    grader: Json | None = None


class Distillation:
    """One run."""

    def __init__(self, wanted: Wanted, pool: Pool, connect: Callable[[], Teacher]) -> None:
        self.wanted, self.pool, self._connect = wanted, pool, connect
        self.tally, self.rows = Tally(), 0

    def gather(self, seen: Seen) -> None:
        """Have the teacher answer every prompt."""
        self.pool.ask(self._asks(), self._connect(), seen)

    def rate(self, seen: Seen) -> None:
        """Have the judge read every answer, if one is asked."""
        if self.wanted.judge is not None:
            self.pool.ask(self._questions(), self._connect(), seen)

    def write(self) -> None:
        """The file whole, or none; raises Trouble where not one row can be made."""
        part = self.wanted.out.with_name(f".{self.wanted.out.name}.part")
        try:
            with part.open("w", encoding="utf-8") as lines:
                for row in self._rows():
                    lines.write(json.dumps(row, ensure_ascii=False) + "\n")
                    self.rows += 1
            if not self.rows:
                raise self._nothing()
            part.replace(self.wanted.out)
        finally:
            part.unlink(missing_ok=True)

    def _prompts(self, tally: Tally | None = None) -> Iterator[Prompt]:
        return prompts(self.wanted.file, tally or Tally())

    def _ask(self, prompt: Prompt, number: int) -> Ask:
        wanted = self.wanted
        return Ask(
            url=wanted.url,
            model=wanted.teacher,
            messages=prompt.messages,
            sampling=wanted.sampling,
            number=number,
        )

    def _asks(self) -> Iterator[Ask]:
        for prompt in self._prompts():
            for number in range(self.wanted.candidates):
                yield self._ask(prompt, number)

    def _question(self, prompt: Prompt, text: str) -> Ask:
        return Ask(
            url=self.wanted.url,
            model=self.wanted.judge or "",
            messages=judge.question(prompt.messages, text),
            sampling=self.wanted.judge_sampling or {},
        )

    def _questions(self) -> Iterator[Ask]:
        for prompt in self._prompts():
            for text in self._texts(prompt, Tally()):
                yield self._question(prompt, text)

    def _texts(self, prompt: Prompt, tally: Tally) -> list[str]:
        """The prompt's candidates that are of use."""
        asks = [self._ask(prompt, number) for number in range(self.wanted.candidates)]
        return useful([self._said(ask) for ask in asks], tally)

    def _said(self, ask: Ask) -> Reply | str:
        reply = self.pool.replies.get(ask.key)
        return self.pool.refused.get(ask.key, "it was not asked") if reply is None else reply

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
            except Unfit as why:
                self.tally.leave_out(prompt.line, str(why))

    def _rated(self, graded: list[tuple[str, float | None]]) -> list[tuple[str, float | None]]:
        """Without those that should have a grade and have none."""
        if self.wanted.grader is None and self.wanted.judge is None:
            return graded
        for _, grade in graded:
            if grade is None:
                by = (
                    "the grader gave an error" if self.wanted.grader else "the judge gave no number"
                )
                self.tally.drop(by)
        return [(text, grade) for text, grade in graded if grade is not None]

    def _number(self, prompt: Prompt, text: str) -> float | None:
        if self.wanted.judge is None:
            return None
        said = self._said(self._question(prompt, text))
        return judge.number(said.text) if isinstance(said, Reply) else None

    def _given(self, grader: Json) -> Iterator[float | None]:
        """Grades of all candidates, in order."""
        pairs = (
            (prompt.item, text)
            for prompt in self._prompts()
            for text in self._texts(prompt, Tally())
        )
        return iter(judge.grades(grader, pairs))

    def _nothing(self) -> Trouble:
        why = [*self.tally.told()]
        return Trouble(
            f"Not one row could be made of {self.wanted.file}. {'. '.join(why)}.",
            "More candidates, or a higher --temperature, make candidates that differ.",
            code="nothing_distilled",
        )


@dataclass(frozen=True)
class Look:
    """What a file of prompts holds."""

    prompts: int
    answered: int  # of them that say what a right answer comes to


def look(file: Path) -> Look:
    """Read all of it before anything is paid for; raises Trouble where it holds no prompt."""
    tally, total, answered = Tally(), 0, 0
    for prompt in prompts(file, tally):
        total += 1
        answered += prompt.item.get(ANSWER) is not None
    if not total:
        why = "; ".join(tally.reasons()) or "it holds no rows"
        raise Trouble(
            f"{file} holds no prompt: {why}.",
            "A row has `messages` that end before the answer, or a `prompt`.",
            exit_code=ExitCode.USAGE,
            code="no_prompts",
        )
    return Look(total, answered)
