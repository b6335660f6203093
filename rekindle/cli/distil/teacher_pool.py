"""Send requests to a teacher with limited concurrency; cached replies are reused."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rekindle.cli.distil.reply_cache import ReplyCache
from rekindle.cli.distil.tally import TokenUsage
from rekindle.cli.distil.teacher import PromptRefused, Teacher, TeacherBusy
from rekindle.cli.distil.teacher_messages import TeacherReply, TeacherRequest
from rekindle.cli.errors import CliError

OnRequest = Callable[[], object]  # called after each request
# This many refusals in a row end the run: single prompts cannot be the cause.
MAX_CONSECUTIVE_REFUSALS = 20


@dataclass
class TeacherPool:
    """Runs requests and counts their outcomes over all calls."""

    replies: ReplyCache
    concurrency: int
    paid: TokenUsage = field(default_factory=TokenUsage)
    cached: TokenUsage = field(default_factory=TokenUsage)  # replies of earlier runs
    refused: dict[str, str] = field(default_factory=dict)  # request key: reason
    _consecutive_refusals: int = 0

    def run_requests(
        self, requests: Iterator[TeacherRequest], teacher: Teacher, on_request: OnRequest
    ) -> None:
        """Run all requests until each has a reply or a refusal; raise CliError to end the run."""
        asyncio.run(self._run_all(requests, teacher, on_request))

    async def _run_all(
        self, requests: Iterator[TeacherRequest], teacher: Teacher, on_request: OnRequest
    ) -> None:
        try:
            async with teacher, asyncio.TaskGroup() as tasks:
                for _ in range(self.concurrency):
                    tasks.create_task(self._run_worker(requests, teacher, on_request))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _run_worker(
        self, requests: Iterator[TeacherRequest], teacher: Teacher, on_request: OnRequest
    ) -> None:
        """Run requests from the shared iterator, one at a time."""
        for request in requests:
            if (reply := self.replies.get(request.key)) is not None:
                _count_reply(self.cached, reply)
                await asyncio.sleep(0)  # lets Ctrl-C through
            else:
                await self._run_one(request, teacher)
            on_request()

    async def _run_one(self, request: TeacherRequest, teacher: Teacher) -> None:
        try:
            reply = await teacher.request_reply(request)
        except PromptRefused as why:
            self._record_refusal(request, str(why))
            return
        except TeacherBusy as why:
            if not why.is_prompt_specific:
                raise
            # Otherwise the run could never get past this prompt.
            self._record_refusal(request, why.message)
            return
        self.replies.put(request.key, reply)
        _count_reply(self.paid, reply)
        self._consecutive_refusals = 0

    def _record_refusal(self, request: TeacherRequest, why: str) -> None:
        self.refused[request.key] = why
        self._consecutive_refusals += 1
        if self._consecutive_refusals >= MAX_CONSECUTIVE_REFUSALS:
            raise CliError(
                f"{request.url} refused {MAX_CONSECUTIVE_REFUSALS} requests in a row; "
                f"the last reason: {why}",
                "Check that the model accepts these options; --param temperature=null omits one.",
                code="teacher_refuses",
            )


def _count_reply(usage: TokenUsage, reply: TeacherReply) -> None:
    usage.add(reply.prompt_tokens, reply.completion_tokens)
