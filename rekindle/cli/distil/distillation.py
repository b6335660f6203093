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
from rekindle.cli.distil.prompts import ANSWER, TeacherPrompt, UnusablePrompt, read_prompts
from rekindle.cli.distil.rows import RowKind, build_rows, usable_answers
from rekindle.cli.distil.tally import DistilTally
from rekindle.cli.distil.teacher import Teacher
from rekindle.cli.distil.teacher_messages import TeacherReply, TeacherRequest
from rekindle.cli.distil.teacher_pool import OnRequest, TeacherPool
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
        self, settings: DistilSettings, pool: TeacherPool, connect: Callable[[], Teacher]
    ) -> None:
        self.settings, self.pool, self._connect = settings, pool, connect
        self.tally, self.rows = DistilTally(), 0

    def collect_answers(self, on_request: OnRequest) -> None:
        """Ask the teacher for all candidates of every prompt."""
        self.pool.run_requests(self._answer_requests(), self._connect(), on_request)

    def judge_answers(self, on_request: OnRequest) -> None:
        """Ask the judge to grade every candidate, if there is a judge."""
        if self.settings.judge is not None:
            self.pool.run_requests(self._judge_requests(), self._connect(), on_request)

    def write_rows(self) -> None:
        """Write the whole file or nothing; raise CliError if there is no row."""
        with partial_file(self.settings.out) as part_path:
            with part_path.open("w", encoding="utf-8") as lines:
                for row in self._build_rows():
                    lines.write(json.dumps(row, ensure_ascii=False) + "\n")
                    self.rows += 1
            if not self.rows:
                raise self._no_rows_error()

    def _prompts(self, tally: DistilTally | None = None) -> Iterator[TeacherPrompt]:
        return read_prompts(self.settings.file, tally or DistilTally())

    def _answer_request(self, prompt: TeacherPrompt, number: int) -> TeacherRequest:
        settings = self.settings
        return TeacherRequest(
            url=settings.url,
            model=settings.teacher,
            messages=prompt.messages,
            sampling=settings.sampling,
            number=number,
        )

    def _answer_requests(self) -> Iterator[TeacherRequest]:
        for prompt in self._prompts():
            for number in range(self.settings.candidates):
                yield self._answer_request(prompt, number)

    def _judge_request(self, prompt: TeacherPrompt, text: str) -> TeacherRequest:
        return TeacherRequest(
            url=self.settings.url,
            model=self.settings.judge or "",
            messages=judge.judge_messages(prompt.messages, text),
            sampling=self.settings.judge_sampling or {},
        )

    def _judge_requests(self) -> Iterator[TeacherRequest]:
        for prompt in self._prompts():
            for text in self._usable_answers(prompt, DistilTally()):
                yield self._judge_request(prompt, text)

    def _usable_answers(self, prompt: TeacherPrompt, tally: DistilTally) -> list[str]:
        """Return the prompt's usable candidates."""
        requests = [
            self._answer_request(prompt, number) for number in range(self.settings.candidates)
        ]
        return usable_answers([self._reply_or_refusal(request) for request in requests], tally)

    def _reply_or_refusal(self, request: TeacherRequest) -> TeacherReply | str:
        reply = self.pool.replies.get(request.key)
        return (
            self.pool.refused.get(request.key, "it was not requested") if reply is None else reply
        )

    def _build_rows(self) -> Iterator[Json]:
        grader = self.settings.grader
        exact = grader == judge.EXACT
        grades = self._grader_grades(grader) if grader else iter(())
        for prompt in self._prompts(self.tally):
            texts = self._usable_answers(prompt, self.tally)
            if grader:
                graded = list(zip(texts, islice(grades, len(texts)), strict=True))
            else:
                graded = [(text, self._judge_grade(prompt, text)) for text in texts]
            try:
                yield from build_rows(
                    self.settings.kind, prompt, self._drop_ungraded(graded), exact=exact
                )
            except UnusablePrompt as why:
                self.tally.skipped.add(prompt.line, str(why))

    def _drop_ungraded(
        self, graded: list[tuple[str, float | None]]
    ) -> list[tuple[str, float | None]]:
        """Drop candidates without a grade, if there is a judge or grader."""
        if self.settings.grader is None and self.settings.judge is None:
            return graded
        for _, grade in graded:
            if grade is None:
                by = "the grader failed" if self.settings.grader else "the judge returned no number"
                self.tally.drop(by)
        return [(text, grade) for text, grade in graded if grade is not None]

    def _judge_grade(self, prompt: TeacherPrompt, text: str) -> float | None:
        if self.settings.judge is None:
            return None
        reply = self._reply_or_refusal(self._judge_request(prompt, text))
        return judge.parse_grade(reply.text) if isinstance(reply, TeacherReply) else None

    def _grader_grades(self, grader: Json) -> Iterator[float | None]:
        """Return the grades of all candidates, in order."""
        pairs = (
            (prompt.item, text)
            for prompt in self._prompts()
            for text in self._usable_answers(prompt, DistilTally())
        )
        return iter(judge.run_grader(grader, pairs))

    def _no_rows_error(self) -> CliError:
        why = [*self.tally.summary_lines()]
        return CliError(
            f"No row could be made from {self.settings.file}. {'. '.join(why)}.",
            "Raise --candidates or --temperature to get answers that differ.",
            code="nothing_distilled",
        )


@dataclass(frozen=True)
class PromptCounts:
    """Number of prompts in a file, and of those with a reference answer."""

    prompts: int
    answered: int  # prompts with a reference answer


def count_prompts(path: Path) -> PromptCounts:
    """Count the prompts before anything is paid for; raise CliError if there are none."""
    tally, total, answer_count = DistilTally(), 0, 0
    for prompt in read_prompts(path, tally):
        total += 1
        answer_count += prompt.item.get(ANSWER) is not None
    if not total:
        why = "; ".join(tally.skipped.reasons()) or "it has no rows"
        raise CliError(
            f"{path} has no prompt: {why}.",
            "A row needs `messages` that end before the answer, or a `prompt`.",
            exit_code=ExitCode.USAGE,
            code="no_prompts",
        )
    return PromptCounts(total, answer_count)
