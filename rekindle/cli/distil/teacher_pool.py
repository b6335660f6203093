"""Send requests to a teacher with limited concurrency; cached replies are reused."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rekindle.cli.distil.reply_cache import ReplyCache
from rekindle.cli.distil.tally import TokenUsage
from rekindle.cli.distil.teacher import PromptRefused, Teacher, TeacherBusy
from rekindle.cli.distil.teacher_messages import TeacherReply, TeacherRequest
from rekindle.cli.errors import CliError

Seen = Callable[[], object]  # called after each request
IN_A_ROW = 20  # consecutive refusals that end the run: the prompts are not the cause


@dataclass
class TeacherPool:
    """Runs requests and counts their outcomes over all calls."""

    replies: ReplyCache
    at_once: int
    paid: TokenUsage = field(default_factory=TokenUsage)
    kept: TokenUsage = field(default_factory=TokenUsage)  # replies of earlier runs
    refused: dict[str, str] = field(default_factory=dict)  # request key: reason
    _in_a_row: int = 0

    def ask(self, asks: Iterator[TeacherRequest], teacher: Teacher, seen: Seen) -> None:
        """Run all requests until each has a reply or a refusal; raise CliError to end the run."""
        asyncio.run(self._all(asks, teacher, seen))

    async def _all(self, asks: Iterator[TeacherRequest], teacher: Teacher, seen: Seen) -> None:
        try:
            async with teacher, asyncio.TaskGroup() as tasks:
                for _ in range(self.at_once):
                    tasks.create_task(self._some(asks, teacher, seen))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _some(self, asks: Iterator[TeacherRequest], teacher: Teacher, seen: Seen) -> None:
        """Run requests from the shared iterator, one at a time."""
        for ask in asks:
            if (reply := self.replies.get(ask.key)) is not None:
                _count(self.kept, reply)
                await asyncio.sleep(0)  # lets Ctrl-C through
            else:
                await self._one(ask, teacher)
            seen()

    async def _one(self, ask: TeacherRequest, teacher: Teacher) -> None:
        try:
            reply = await teacher.reply(ask)
        except PromptRefused as why:
            self._refuse(ask, str(why))
            return
        except TeacherBusy as why:
            if not why.is_about_it:
                raise
            self._refuse(ask, why.message)  # otherwise the run could never get past this prompt
            return
        self.replies.put(ask.key, reply)
        _count(self.paid, reply)
        self._in_a_row = 0

    def _refuse(self, ask: TeacherRequest, why: str) -> None:
        self.refused[ask.key] = why
        self._in_a_row += 1
        if self._in_a_row >= IN_A_ROW:
            raise CliError(
                f"{ask.url} refused {IN_A_ROW} requests in a row; the last reason: {why}",
                "Check that the model accepts these options; --param temperature=null omits one.",
                code="teacher_refuses",
            )


def _count(spent: TokenUsage, reply: TeacherReply) -> None:
    spent.add(reply.prompt_tokens, reply.completion_tokens)
