"""`rekindle distil`: generate training rows from a teacher model's answers to prompts.

The teacher is any server of OpenAI's chat completions; the Rekindle service is not needed. Every
reply is saved to a file at once, so a rerun continues where it stopped.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rekindle.cli import formats
from rekindle.cli.command import Cli
from rekindle.cli.distil import options
from rekindle.cli.distil.options import GradingOptions, RequestOptions, usage_error
from rekindle.cli.distil.rows import RowKind
from rekindle.cli.errors import CliError, ExitCode
from rekindle.cli.files.json_rows import require_file

if TYPE_CHECKING:
    from rekindle.cli.distil.distillation import Distillation, DistilSettings, PromptCounts
    from rekindle.cli.distil.teacher import Teacher
    from rekindle.cli.distil.teacher_pool import OnRequest, TeacherPool

Json = dict[str, Any]
_OPENAI = "https://api.openai.com/v1"
_METHODS = {
    RowKind.SFT: "",
    RowKind.PREFERENCE: " --method dpo",
    RowKind.RANKING: " --method reward --set method.reward.loss=ranked_margin",
}


def distil_rows(
    cli: Cli,
    prompts: options.File,
    *,
    out: options.Out,
    teacher_url: options.Url,
    teacher: options.Model,
    kind: options.Kind = RowKind.SFT,
    request_options: RequestOptions,
    grading_options: GradingOptions,
) -> int | None:
    """Write OUT with training rows from a teacher's answers to PROMPTS. Rerun to continue."""
    from rekindle.cli.distil.distillation import Distillation, count_prompts
    from rekindle.cli.distil.reply_cache import ReplyCache
    from rekindle.cli.distil.teacher_pool import TeacherPool

    require_file(prompts)
    counts = count_prompts(prompts)
    settings = _validated_settings(
        (prompts, out), teacher_url, teacher, kind, request_options, grading_options, counts
    )
    cache = request_options.cache or prompts.with_name(f"{prompts.name}.replies")
    replies = ReplyCache(cache)
    try:
        pool = TeacherPool(replies, request_options.concurrency)
        run = Distillation(
            settings, pool, lambda: _open_teacher(settings.url, request_options.timeout)
        )
        _run_distillation(cli, run, counts, cache)
    except KeyboardInterrupt:
        cli.print_note(f"Stopped. Replies so far are in {cache}; run the same command to continue.")
        return ExitCode.INTERRUPTED
    finally:
        replies.close()
    cli.print_result(
        _document(run, request_options, cache), lambda: _summary_lines(run, request_options)
    )
    return None


def _run_distillation(cli: Cli, run: "Distillation", counts: "PromptCounts", cache: Path) -> None:
    settings = run.settings
    total = counts.prompts * settings.candidates
    cli.print_note(f"{formats.count(total, 'answer')} to {formats.count(counts.prompts, 'prompt')}")
    try:
        with _progress_line(cli, run.pool, "answers", total) as on_request:
            run.collect_answers(on_request)
        with _progress_line(cli, run.pool, "judged", None) as on_request:
            run.judge_answers(on_request)
    except CliError as error:
        raise CliError(
            error.message,
            f"{error.advice} Replies so far are in {cache}; run the same command to continue.",
            exit_code=error.exit_code,
            code=error.code,
        ) from error
    run.write_rows()


def _validated_settings(
    files: tuple[Path, Path],
    url: str,
    teacher: str,
    kind: RowKind,
    request_options: RequestOptions,
    grading_options: GradingOptions,
    counts: "PromptCounts",
) -> "DistilSettings":
    """Return the validated options; raise CliError before anything is paid for."""
    from rekindle.cli.distil.distillation import DistilSettings
    from rekindle.cli.distil.judge import run_grader

    _check_options(files[1], kind, request_options, grading_options)
    judge, grader = _choose_grading(teacher, kind, grading_options, has_answers=counts.answered > 0)
    if grader is not None:
        run_grader(grader, [])  # finds an invalid grader before any request
    return DistilSettings(
        file=files[0],
        out=files[1],
        kind=kind,
        url=_valid_address(url),
        teacher=teacher,
        candidates=request_options.candidates,
        sampling=request_options.sampling(request_options.temperature),
        judge=judge,
        judge_sampling=request_options.sampling(0.0),
        grader=grader,
    )


def _check_options(
    out: Path, kind: RowKind, request_options: RequestOptions, grading_options: GradingOptions
) -> None:
    if out.exists():
        raise usage_error(f"{out} already exists.", "Pass another file name.")
    if not out.parent.is_dir():
        raise usage_error(f"{out.parent} is not a folder.", "Create it, or pass another one.")
    if kind is not RowKind.SFT and request_options.candidates < 2:
        raise usage_error(f"Rows of kind {kind} need two answers.", "Pass --candidates 2 or more.")
    if request_options.candidates > 1 and request_options.temperature == 0:
        raise usage_error(
            "With --temperature 0 all candidates are equal.",
            "Raise --temperature, or pass --candidates 1.",
        )
    if grading_options.judge and grading_options.grader:
        raise usage_error("--judge and --grader cannot be combined.", "Omit one.")


def _choose_grading(
    teacher: str, kind: RowKind, grading_options: GradingOptions, *, has_answers: bool
) -> tuple[str | None, Json | None]:
    """Return the judge's model or the grader; neither if chats are taken without grades."""
    from rekindle.cli.distil.judge import EXACT

    if grading_options.judge:
        return grading_options.judge, None
    if grading_options.grader:
        return None, _read_grader(grading_options.grader)
    if has_answers:
        return None, EXACT
    return (None if kind is RowKind.SFT else teacher), None


def _read_grader(path: Path) -> Json:
    try:
        grader = json.loads(path.read_bytes())
    except OSError as error:
        raise usage_error(
            f"--grader {path}: {error.strerror}.", "Pass an existing file."
        ) from error
    except ValueError as error:
        raise usage_error(f"--grader {path} is not JSON: {error}", "Correct the file.") from error
    if not isinstance(grader, dict):
        raise usage_error(
            f"--grader {path} is not a JSON object.", "See docs/graders.md for examples."
        )
    return grader


def _valid_address(url: str) -> str:
    import httpx

    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise usage_error(
            f"--teacher-url {url!r} is not a valid address: {error}.", "Correct it."
        ) from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise usage_error(
            f"--teacher-url {url!r} is not an HTTP address.",
            "Write it as https://HOST/v1.",
        )
    return url.rstrip("/")


def _open_teacher(url: str, timeout: float) -> "Teacher":
    """Return the teacher with its key; an OpenAI key is sent only to OpenAI's address."""
    from rekindle.cli.distil.teacher import KEY, Teacher

    key = os.environ.get(KEY)
    openais = (_OPENAI, os.environ.get("OPENAI_BASE_URL", "").rstrip("/"))
    if not key and url in openais:
        key = os.environ.get("OPENAI_API_KEY")
    return Teacher(url, key, timeout)


@contextmanager
def _progress_line(
    cli: Cli, pool: "TeacherPool", label: str, total: int | None
) -> "Iterator[OnRequest]":
    """Show progress and token counts, on a terminal only."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn(label),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[t]}", markup=False),
    )
    hidden = cli.as_json or not cli.err.is_terminal
    with Progress(*columns, console=cli.err, transient=True, disable=hidden) as progress:
        task = progress.add_task("", total=total, t="")

        def show_request() -> None:
            paid = pool.paid
            tokens = paid.prompt_tokens + paid.completion_tokens
            progress.update(task, advance=1, t=f"{tokens:,} tokens, {pool.cached.replies:,} kept")

        yield show_request


def _document(run: "Distillation", request_options: RequestOptions, cache: Path) -> Json:
    settings, paid = run.settings, run.pool.paid
    graded_by = "judge" if settings.judge else "grader" if settings.grader else None
    return {
        "file": str(settings.out),
        "kind": settings.kind,
        "rows": run.rows,
        "graded_by": graded_by,
        **run.tally.as_dict(),
        "paid": paid.as_dict() | {"cost": paid.cost(_prices(request_options))},
        "kept": run.pool.cached.as_dict(),
        "cache": str(cache),
    }


def _summary_lines(run: "Distillation", request_options: RequestOptions) -> Iterator[str]:
    settings, paid, cached = run.settings, run.pool.paid, run.pool.cached
    yield f"wrote {formats.count(run.rows, 'row')} of kind {settings.kind} to {settings.out}"
    yield from run.tally.summary_lines()
    cost = paid.cost(_prices(request_options))
    yield (
        f"replies: {paid.replies:,} new, {cached.replies:,} from earlier runs; new tokens: "
        f"{paid.prompt_tokens:,} in, {paid.completion_tokens:,} out"
        + (f", about {formats.money(cost)}" if cost is not None else "")
    )
    yield f"Next: rekindle submit {settings.out} --model MODEL{_METHODS[settings.kind]}"


def _prices(request_options: RequestOptions) -> dict[str, float | None]:
    return {"input": request_options.input_price, "output": request_options.output_price}
