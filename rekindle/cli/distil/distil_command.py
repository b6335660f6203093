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
from rekindle.cli.distil.options import GradingOptions, RequestOptions, wrong
from rekindle.cli.distil.rows import RowKind
from rekindle.cli.errors import CliError, ExitCode
from rekindle.cli.files.json_rows import require_file

if TYPE_CHECKING:
    from rekindle.cli.distil.distillation import Distillation, DistilSettings, PromptCounts
    from rekindle.cli.distil.teacher import Teacher
    from rekindle.cli.distil.teacher_pool import Seen, TeacherPool

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
    kind: options.Sort = RowKind.SFT,
    asking: RequestOptions,
    grading: GradingOptions,
) -> int | None:
    """Write OUT with training rows from a teacher's answers to PROMPTS. Rerun to continue."""
    from rekindle.cli.distil.distillation import Distillation, look
    from rekindle.cli.distil.reply_cache import ReplyCache
    from rekindle.cli.distil.teacher_pool import TeacherPool

    require_file(prompts)
    found = look(prompts)
    wanted = _wanted((prompts, out), teacher_url, teacher, kind, asking, grading, found)
    cache = asking.cache or prompts.with_name(f"{prompts.name}.replies")
    replies = ReplyCache(cache)
    try:
        pool = TeacherPool(replies, asking.concurrency)
        run = Distillation(wanted, pool, lambda: _teacher(wanted.url, asking.timeout))
        _carry_out(cli, run, found, cache)
    except KeyboardInterrupt:
        cli.print_note(f"Stopped. Replies so far are in {cache}; run the same command to continue.")
        return ExitCode.INTERRUPTED
    finally:
        replies.close()
    cli.print_result(_document(run, asking, cache), lambda: _told(run, asking))
    return None


def _carry_out(cli: Cli, run: "Distillation", found: "PromptCounts", cache: Path) -> None:
    wanted = run.wanted
    total = found.prompts * wanted.candidates
    cli.print_note(f"{formats.count(total, 'answer')} to {formats.count(found.prompts, 'prompt')}")
    try:
        with _line(cli, run.pool, "answers", total) as seen:
            run.gather(seen)
        with _line(cli, run.pool, "judged", None) as seen:
            run.rate(seen)
    except CliError as trouble:
        raise CliError(
            trouble.message,
            f"{trouble.advice} Replies so far are in {cache}; run the same command to continue.",
            exit_code=trouble.exit_code,
            code=trouble.code,
        ) from trouble
    run.write()


def _wanted(
    files: tuple[Path, Path],
    url: str,
    teacher: str,
    kind: RowKind,
    asking: RequestOptions,
    grading: GradingOptions,
    found: "PromptCounts",
) -> "DistilSettings":
    """Return the validated options; raise CliError before anything is paid for."""
    from rekindle.cli.distil.distillation import DistilSettings
    from rekindle.cli.distil.judge import grades

    _check(files[1], kind, asking, grading)
    judge, grader = _by(teacher, kind, grading, answered=found.answered > 0)
    if grader is not None:
        grades(grader, [])  # finds an invalid grader before any request
    return DistilSettings(
        file=files[0],
        out=files[1],
        kind=kind,
        url=_address(url),
        teacher=teacher,
        candidates=asking.candidates,
        sampling=asking.sampling(asking.temperature),
        judge=judge,
        judge_sampling=asking.sampling(0.0),
        grader=grader,
    )


def _check(out: Path, kind: RowKind, asking: RequestOptions, grading: GradingOptions) -> None:
    if out.exists():
        raise wrong(f"{out} already exists.", "Pass another file name.")
    if not out.parent.is_dir():
        raise wrong(f"{out.parent} is not a folder.", "Create it, or pass another one.")
    if kind is not RowKind.SFT and asking.candidates < 2:
        raise wrong(f"Rows of kind {kind} need two answers.", "Pass --candidates 2 or more.")
    if asking.candidates > 1 and asking.temperature == 0:
        raise wrong(
            "With --temperature 0 all candidates are equal.",
            "Raise --temperature, or pass --candidates 1.",
        )
    if grading.judge and grading.grader:
        raise wrong("--judge and --grader cannot be combined.", "Omit one.")


def _by(
    teacher: str, kind: RowKind, grading: GradingOptions, *, answered: bool
) -> tuple[str | None, Json | None]:
    """Return the judge's model or the grader; neither if chats are taken without grades."""
    from rekindle.cli.distil.judge import EXACT

    if grading.judge:
        return grading.judge, None
    if grading.grader:
        return None, _read(grading.grader)
    if answered:
        return None, EXACT
    return (None if kind is RowKind.SFT else teacher), None


def _read(path: Path) -> Json:
    try:
        grader = json.loads(path.read_bytes())
    except OSError as error:
        raise wrong(f"--grader {path}: {error.strerror}.", "Pass an existing file.") from error
    except ValueError as error:
        raise wrong(f"--grader {path} is not JSON: {error}", "Correct the file.") from error
    if not isinstance(grader, dict):
        raise wrong(f"--grader {path} is not a JSON object.", "See docs/graders.md for examples.")
    return grader


def _address(url: str) -> str:
    import httpx

    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise wrong(
            f"--teacher-url {url!r} is not a valid address: {error}.", "Correct it."
        ) from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise wrong(
            f"--teacher-url {url!r} is not an HTTP address.",
            "Write it as https://HOST/v1.",
        )
    return url.rstrip("/")


def _teacher(url: str, timeout: float) -> "Teacher":
    """Return the teacher with its key; an OpenAI key is sent only to OpenAI's address."""
    from rekindle.cli.distil.teacher import KEY, Teacher

    key = os.environ.get(KEY)
    openais = (_OPENAI, os.environ.get("OPENAI_BASE_URL", "").rstrip("/"))
    if not key and url in openais:
        key = os.environ.get("OPENAI_API_KEY")
    return Teacher(url, key, timeout)


@contextmanager
def _line(cli: Cli, pool: "TeacherPool", what: str, total: int | None) -> "Iterator[Seen]":
    """Show progress and token counts on a terminal; nothing elsewhere."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[t]}", markup=False),
    )
    hidden = cli.as_json or not cli.err.is_terminal
    with Progress(*columns, console=cli.err, transient=True, disable=hidden) as progress:
        task = progress.add_task("", total=total, t="")

        def seen() -> None:
            paid = pool.paid
            tokens = paid.prompt_tokens + paid.completion_tokens
            progress.update(task, advance=1, t=f"{tokens:,} tokens, {pool.kept.replies:,} kept")

        yield seen


def _document(run: "Distillation", asking: RequestOptions, cache: Path) -> Json:
    wanted, paid = run.wanted, run.pool.paid
    by = "judge" if wanted.judge else "grader" if wanted.grader else None
    return {
        "file": str(wanted.out),
        "kind": wanted.kind,
        "rows": run.rows,
        "graded_by": by,
        **run.tally.as_dict(),
        "paid": paid.as_dict() | {"cost": paid.cost(_prices(asking))},
        "kept": run.pool.kept.as_dict(),
        "cache": str(cache),
    }


def _told(run: "Distillation", asking: RequestOptions) -> Iterator[str]:
    wanted, paid, kept = run.wanted, run.pool.paid, run.pool.kept
    yield f"wrote {formats.count(run.rows, 'row')} of kind {wanted.kind} to {wanted.out}"
    yield from run.tally.told()
    cost = paid.cost(_prices(asking))
    yield (
        f"replies: {paid.replies:,} new, {kept.replies:,} from earlier runs; new tokens: "
        f"{paid.prompt_tokens:,} in, {paid.completion_tokens:,} out"
        + (f", about {formats.money(cost)}" if cost is not None else "")
    )
    yield f"Next: rekindle submit {wanted.out} --model MODEL{_METHODS[wanted.kind]}"


def _prices(asking: RequestOptions) -> dict[str, float | None]:
    return {"input": asking.input_price, "output": asking.output_price}
