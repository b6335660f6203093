"""Many requests at once, a few at a time; what was answered before is not asked again."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rekindle.cli.distil.reply_cache import Replies
from rekindle.cli.distil.tally import Spent
from rekindle.cli.distil.teacher import Later, Refused, Teacher
from rekindle.cli.distil.teacher_messages import Ask, Reply
from rekindle.cli.errors import Trouble

Seen = Callable[[], object]  # called once a request more is settled
IN_A_ROW = 20  # refusals without an answer between them: it is not the prompts


@dataclass
class Pool:
    """What requests have come to, over all calls."""

    replies: Replies
    at_once: int
    paid: Spent = field(default_factory=Spent)
    kept: Spent = field(default_factory=Spent)  # replies of earlier runs
    refused: dict[str, str] = field(default_factory=dict)  # key of what was asked: why
    _in_a_row: int = 0

    def ask(self, asks: Iterator[Ask], teacher: Teacher, seen: Seen) -> None:
        """Until each has its reply or is refused; raises Trouble when it cannot go on."""
        asyncio.run(self._all(asks, teacher, seen))

    async def _all(self, asks: Iterator[Ask], teacher: Teacher, seen: Seen) -> None:
        try:
            async with teacher, asyncio.TaskGroup() as tasks:
                for _ in range(self.at_once):
                    tasks.create_task(self._some(asks, teacher, seen))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _some(self, asks: Iterator[Ask], teacher: Teacher, seen: Seen) -> None:
        """One after the other, of those that nobody else has taken."""
        for ask in asks:
            if (reply := self.replies.get(ask.key)) is not None:
                _count(self.kept, reply)
                await asyncio.sleep(0)  # so that Ctrl-C is heard
            else:
                await self._one(ask, teacher)
            seen()

    async def _one(self, ask: Ask, teacher: Teacher) -> None:
        try:
            reply = await teacher.reply(ask)
        except Refused as why:
            self._refuse(ask, str(why))
            return
        except Later as why:
            if not why.is_about_it:
                raise
            self._refuse(ask, why.message)  # or it would never get past this prompt
            return
        self.replies.put(ask.key, reply)
        _count(self.paid, reply)
        self._in_a_row = 0

    def _refuse(self, ask: Ask, why: str) -> None:
        self.refused[ask.key] = why
        self._in_a_row += 1
        if self._in_a_row >= IN_A_ROW:
            raise Trouble(
                f"{ask.url} refuses every request, the last one with: {why}",
                "Does this model take these options? --param temperature=null leaves one out.",
                code="teacher_refuses",
            )


def _count(spent: Spent, reply: Reply) -> None:
    spent.add(reply.prompt_tokens, reply.completion_tokens)
