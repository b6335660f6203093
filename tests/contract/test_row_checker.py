"""Contract of row checkers: in a limited process, and in the test's process."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from rendering.report import DataReport
from rendering.task import Task
from service.domain.errors import InvalidRequest
from service.preflight import process
from service.preflight.checker import CheckInterrupted, RowChecker, Rows
from service.preflight.inline import InlineChecker
from service.preflight.process import ProcessChecker
from tests.vocabulary import TEMPLATE, tokenizer_files

TASK = Task(
    folder="", method="supervised", has_answers=False, max_seq_len=200, room=200, date="2026-02-03"
)


def rows(*content: object, ends: str = "\n") -> Rows:
    """Return a data file of these rows as a stream of 7-byte chunks."""
    data = "".join((r if isinstance(r, str) else json.dumps(r)) + ends for r in content).encode()

    async def stream() -> AsyncIterator[bytes]:
        for start in range(0, len(data), 7):
            yield data[start : start + 7]

    return stream


def chat(*texts: str) -> dict[str, Any]:
    roles = ("user", "assistant") * len(texts)
    return {"messages": [{"role": r, "content": t} for r, t in zip(roles, texts, strict=False)]}


@pytest.fixture(params=[InlineChecker, ProcessChecker])
def checker(request: pytest.FixtureRequest) -> RowChecker:
    row_checker: RowChecker = request.param()
    return row_checker


async def check(checker: RowChecker, data: Rows, template: str = TEMPLATE) -> DataReport:
    return await checker.check(tokenizer_files(template), data, TASK, lambda _: None)


async def test_rows_examples_and_tokens_are_counted(checker: RowChecker) -> None:
    report = await check(checker, rows(chat("2+2?", "4"), "", chat("3+3?", "6")))

    # <|bos|>user: 2+2?<|end|>assistant: 4<|end|> is 3 special tokens and 22 bytes.
    assert (report.rows, report.examples, report.sequences) == (2, 2, 2)
    assert (report.tokens, report.kept_tokens, report.trained_tokens) == (50, 50, 4)
    assert report.lengths == (25, 25)
    assert report.findings == ()


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
async def test_lines_are_counted_as_an_editor_counts_them(checker: RowChecker, ends: str) -> None:
    bad = {"messages": [{"role": "user", "content": "x"}]}
    report = await check(
        checker, rows("\ufeff" + json.dumps(chat("a", "b")), "", "{", bad, ends=ends)
    )

    assert {f.code: f.lines for f in report.findings} == {
        "unreadable_row": (3,),
        "row_not_trained": (4,),
    }
    assert report.rows == 3


async def test_files_that_are_no_tokenizer_are_the_models_fault(checker: RowChecker) -> None:
    data, task = rows(chat("a", "b")), replace(TASK, most_rows=1)
    for name, content in (("tokenizer.json", b"{}"), ("chat_template.jinja", b"{% if %}")):
        files = tokenizer_files() | {name: content}
        for reading in (
            checker.check(files, data, TASK, lambda _: None),
            checker.preview(files, data, task),
        ):
            with pytest.raises(InvalidRequest) as refused:
                await reading
            assert (refused.value.code, refused.value.param) == ("unsupported_model", "model")


async def test_a_template_that_rewrites_answers_makes_an_example_of_each(
    checker: RowChecker,
) -> None:
    template = TEMPLATE.replace("{%- generation -%}", "{%- generation -%}{{- loop.last -}}")
    report = await check(checker, rows(chat("2+2?", "4", "3+3?", "6")), template)

    assert report.splits_answers
    assert (report.rows, report.examples) == (1, 2)


async def test_names_that_lead_elsewhere_are_refused(checker: RowChecker) -> None:
    files = tokenizer_files() | {"../outside.json": b"{}"}
    with pytest.raises(InvalidRequest, match="no plain name"):
        await checker.check(files, rows(chat("a", "b")), TASK, lambda _: None)


async def test_a_preview_shows_which_text_is_trained_and_which_is_cut(checker: RowChecker) -> None:
    task = replace(TASK, max_seq_len=24, room=24, first_line=2, most_rows=1)
    data = rows(chat("a", "b"), chat("2+2?", "4"), chat("c", "d"))
    preview = await checker.preview(tokenizer_files(), data, task)
    (row,) = preview["rows"]

    assert (row["line"], preview["next_line"]) == (2, 3)
    (example,) = row["examples"]
    assert [(s["kind"], s["text"]) for s in example["segments"]] == [
        ("context", "<|bos|>user: 2+2?<|end|>assistant: "),
        ("trained", "4"),
        ("cut", "<|end|>"),
    ]
    assert [problem["code"] for problem in row["problems"]] == ["answer_cut"]


async def test_a_preview_reads_only_the_beginning_of_a_large_file() -> None:
    """Check ProcessChecker only, because the other checker holds the file in memory."""
    yielded, closed = 0, False

    async def large() -> AsyncIterator[bytes]:
        nonlocal yielded, closed
        try:
            for _ in range(1000):
                yielded += 1
                yield (json.dumps(chat("2+2?", "4")).encode() + b"\n") * 10_000
        finally:
            closed = True

    preview = await ProcessChecker().preview(tokenizer_files(), large, replace(TASK, most_rows=2))

    assert [row["line"] for row in preview["rows"]] == [1, 2]
    assert yielded < 10
    assert closed


async def test_a_preview_does_not_wait_for_a_check() -> None:
    checker, begun = ProcessChecker(at_once=1), asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        begun.set()
        await asyncio.Event().wait()
        yield b""

    checking = asyncio.create_task(check(checker, endless))
    await begun.wait()
    task = replace(TASK, most_rows=1)
    preview = await checker.preview(tokenizer_files(), rows(chat("2+2?", "4")), task)
    checking.cancel()

    assert preview["rows"]


async def test_a_preview_that_takes_too_long_is_given_up() -> None:
    checker, waiting = ProcessChecker(preview_seconds=1.0), asyncio.Event()

    async def silent() -> AsyncIterator[bytes]:
        yield b"{"
        await waiting.wait()

    with pytest.raises(InvalidRequest, match="takes longer than 1 seconds") as refused:
        await checker.preview(tokenizer_files(), silent, replace(TASK, most_rows=1))
    assert refused.value.code == "preview_too_slow"


async def test_a_preview_behind_too_many_others_can_be_asked_for_again() -> None:
    checker = ProcessChecker(preview_seconds=0.5)
    for _ in range(process.MAX_PREVIEWS):
        await checker._preview_slots.acquire()

    with pytest.raises(CheckInterrupted):
        await checker.preview(tokenizer_files(), rows(chat("a", "b")), replace(TASK, most_rows=1))


async def test_an_endless_template_costs_its_row_alone() -> None:
    """Check ProcessChecker only, because the test's process cannot interrupt a template."""
    endless = "{% for m in messages %}{% if m.content == 'stop' %}" + (
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    )
    template = endless + "{% endif %}{% endfor %}" + TEMPLATE
    data = rows(chat("a", "b"), chat("stop", "b"), chat("c", "d"))
    report = await check(ProcessChecker(), data, template)

    assert [(f.code, f.lines) for f in report.errors] == [("template_refuses", (2,))]
    assert "takes longer than" in report.errors[0].message
    assert report.examples == 2


async def test_a_template_that_wants_all_memory_costs_its_row_alone() -> None:
    template = "{% if messages[0].content == 'big' %}{{ 'x' * 9000000000 }}{% endif %}" + TEMPLATE
    report = await check(ProcessChecker(), rows(chat("big", "b"), chat("a", "b")), template)

    assert [(f.code, f.lines) for f in report.errors] == [("template_refuses", (1,))]


async def test_a_child_that_says_nothing_is_given_up() -> None:
    async def silent() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    with pytest.raises(CheckInterrupted, match="said nothing for 1 seconds"):
        await check(ProcessChecker(silent_seconds=1.0), silent)


async def test_a_file_that_cannot_be_read_to_its_end_is_not_the_rows_fault() -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b'{"messages": []}\n'
        raise OSError("the network is away")

    with pytest.raises(OSError, match="the network is away"):
        await check(ProcessChecker(), broken)


def test_the_child_process_gets_no_setting_of_the_service() -> None:
    assert not [name for name in process.child_environment() if name.startswith("REKINDLE")]
