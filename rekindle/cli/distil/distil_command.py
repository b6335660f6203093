"""`rekindle distil`: a teacher answers prompts, and its answers become rows to train on.

No service is needed, but a teacher: any server of OpenAI's chat completions. Every reply is kept
in a file as soon as it is there; run again, the command goes on where it was.
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
from rekindle.cli.distil.options import Asking, Grading, wrong
from rekindle.cli.distil.rows import Kind
from rekindle.cli.errors import ExitCode, Trouble

if TYPE_CHECKING:
    from rekindle.cli.distil.distillation import Distillation, Look, Wanted
    from rekindle.cli.distil.teacher import Teacher
    from rekindle.cli.distil.teacher_pool import Pool, Seen

Json = dict[str, Any]
_OPENAI = "https://api.openai.com/v1"
_METHODS = {
    Kind.SFT: "",
    Kind.PREFERENCE: " --method dpo",
    Kind.RANKING: " --method reward --set method.reward.loss=ranked_margin",
}


def distil(
    cli: Cli,
    prompts: options.File,
    *,
    out: options.Out,
    teacher_url: options.Url,
    teacher: options.Model,
    kind: options.Sort = Kind.SFT,
    asking: Asking,
    grading: Grading,
) -> int | None:
    """Make OUT of a teacher's answers to PROMPTS. Run again, it goes on where it was."""
    from rekindle.cli.distil.distillation import Distillation, look
    from rekindle.cli.distil.prompts import require
    from rekindle.cli.distil.reply_cache import Replies
    from rekindle.cli.distil.teacher_pool import Pool

    require(prompts)
    found = look(prompts)
    wanted = _wanted((prompts, out), teacher_url, teacher, kind, asking, grading, found)
    cache = asking.cache or prompts.with_name(f"{prompts.name}.replies")
    replies = Replies(cache)
    try:
        pool = Pool(replies, asking.concurrency)
        run = Distillation(wanted, pool, lambda: _teacher(wanted.url, asking.timeout))
        _carry_out(cli, run, found, cache)
    except KeyboardInterrupt:
        cli.note(f"Stopped. Replies so far are in {cache}; the same command goes on from there.")
        return ExitCode.INTERRUPTED
    finally:
        replies.close()
    cli.show(_document(run, asking, cache), lambda: _told(run, asking))
    return None


def _carry_out(cli: Cli, run: "Distillation", found: "Look", cache: Path) -> None:
    wanted = run.wanted
    total = found.prompts * wanted.candidates
    cli.note(f"{formats.count(total, 'answer')} to {formats.count(found.prompts, 'prompt')}")
    try:
        with _line(cli, run.pool, "answers", total) as seen:
            run.gather(seen)
        with _line(cli, run.pool, "judged", None) as seen:
            run.rate(seen)
    except Trouble as trouble:
        raise Trouble(
            trouble.message,
            f"{trouble.advice} Replies so far are in {cache}; the same command goes on from there.",
            exit_code=trouble.exit_code,
            code=trouble.code,
        ) from trouble
    run.write()


def _wanted(
    files: tuple[Path, Path],
    url: str,
    teacher: str,
    kind: Kind,
    asking: Asking,
    grading: Grading,
    found: "Look",
) -> "Wanted":
    """What is asked for, or Trouble, before anything is paid for."""
    from rekindle.cli.distil.distillation import Wanted
    from rekindle.cli.distil.judge import grades

    _check(files[1], kind, asking, grading)
    judge, grader = _by(teacher, kind, grading, answered=found.answered > 0)
    if grader is not None:
        grades(grader, [])  # or a grader that is none would be found at the very end
    return Wanted(
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


def _check(out: Path, kind: Kind, asking: Asking, grading: Grading) -> None:
    if out.exists():
        raise wrong(f"{out} is there already.", "Give another name.")
    if not out.parent.is_dir():
        raise wrong(f"{out.parent} is no folder.", "Make it, or give another one.")
    if kind is not Kind.SFT and asking.candidates < 2:
        raise wrong(f"A {kind} needs two answers.", "Give --candidates 2 or more.")
    if asking.candidates > 1 and asking.temperature == 0:
        raise wrong(
            "With --temperature 0 all candidates are the same.",
            "Raise it, or give --candidates 1.",
        )
    if grading.judge and grading.grader:
        raise wrong("--judge and --grader are two ways of the same.", "Leave one out.")


def _by(
    teacher: str, kind: Kind, grading: Grading, *, answered: bool
) -> tuple[str | None, Json | None]:
    """Who is the judge, and the grader; neither, where chats are taken as they come."""
    from rekindle.cli.distil.judge import EXACT

    if grading.judge:
        return grading.judge, None
    if grading.grader:
        return None, _read(grading.grader)
    if answered:
        return None, EXACT
    return (None if kind is Kind.SFT else teacher), None


def _read(path: Path) -> Json:
    try:
        grader = json.loads(path.read_bytes())
    except OSError as error:
        raise wrong(f"--grader {path}: {error.strerror}.", "Give the file.") from error
    except ValueError as error:
        raise wrong(f"--grader {path} is not JSON: {error}", "Mend it.") from error
    if not isinstance(grader, dict):
        raise wrong(f"--grader {path} holds no JSON object.", "docs/graders.md has examples.")
    return grader


def _address(url: str) -> str:
    import httpx

    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise wrong(f"--teacher-url {url!r} is no address: {error}.", "Mend it.") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise wrong(
            f"--teacher-url {url!r} is no address of a web service.",
            "Write it as https://HOST/v1.",
        )
    return url.rstrip("/")


def _teacher(url: str, timeout: float) -> "Teacher":
    """With a key that is meant for it: one of OpenAI's goes where it belongs, and nowhere else."""
    from rekindle.cli.distil.teacher import KEY, Teacher

    key = os.environ.get(KEY)
    openais = (_OPENAI, os.environ.get("OPENAI_BASE_URL", "").rstrip("/"))
    if not key and url in openais:
        key = os.environ.get("OPENAI_API_KEY")
    return Teacher(url, key, timeout)


@contextmanager
def _line(cli: Cli, pool: "Pool", what: str, total: int | None) -> "Iterator[Seen]":
    """How far it is and what it took, on a terminal; silent elsewhere."""
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


def _document(run: "Distillation", asking: Asking, cache: Path) -> Json:
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


def _told(run: "Distillation", asking: Asking) -> Iterator[str]:
    wanted, paid, kept = run.wanted, run.pool.paid, run.pool.kept
    yield f"{formats.count(run.rows, 'row')} of kind {wanted.kind} are in {wanted.out}"
    yield from run.tally.told()
    cost = paid.cost(_prices(asking))
    yield (
        f"replies: {paid.replies:,} new, {kept.replies:,} from before; new tokens: "
        f"{paid.prompt_tokens:,} in, {paid.completion_tokens:,} out"
        + (f", about {formats.money(cost)}" if cost is not None else "")
    )
    yield f"Next: rekindle submit {wanted.out} --model MODEL{_METHODS[wanted.kind]}"


def _prices(asking: Asking) -> dict[str, float | None]:
    return {"input": asking.input_price, "output": asking.output_price}
