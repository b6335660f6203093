"""`rekindle logs`: print and follow the output of a rank."""

import codecs
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rekindle import terminal
from rekindle.cli import formats
from rekindle.cli.command import Cli
from rekindle.cli.errors import CliError, ExitCode, ServiceUnreachable
from rekindle.cli.job_lookup import JOBS, JobArgument, resolve_job_id
from rekindle.cli.jobs.job_feed import OUTAGE_SECONDS, PAUSE_SECONDS

if TYPE_CHECKING:
    from rekindle.cli.api_client import ApiClient

Json = dict[str, Any]
_NEXT = "x-next-offset"
_MOST_LINES = 10_000  # the most that the service returns for `tail`
_AWAY_SECONDS = 3.0


def logs(
    cli: Cli,
    job: JobArgument,
    attempt: Annotated[
        str | None,
        typer.Option(metavar="N", help="Attempt number or id; default: the newest attempt."),
    ] = None,
    rank: Annotated[int, typer.Option(min=0, help="Rank of the process.")] = 0,
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", min=0, help="Number of trailing lines to show.")
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Print new output until the job ends, across evictions."
        ),
    ] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Print raw bytes, control characters included.")
    ] = False,
) -> None:
    """Show the output of one rank of a job."""
    name = resolve_job_id(cli.client, job)
    log = RankLog(cli.client, name, rank)
    if follow:
        _follow(log, attempt, _Shown(cli, tail, raw=raw))
        return
    text = _last_lines(log.read(attempt, tail), tail)
    if cli.as_json:
        document = {"object": "fine_tuning.job.logs", "job": name, "attempt": attempt}
        cli.line(document | {"rank": rank, "text": text.decode(errors="replace")}, indent=2)
        return
    _Text(raw=raw).write(text, final=True)
    if not text:
        cli.note(
            f"{name} has no output from rank {rank} yet. See its state: rekindle events {name}"
        )


class RankLog:
    """Output of one rank in every attempt; keeps an offset per attempt."""

    def __init__(self, client: "ApiClient", name: str, rank: int) -> None:
        self._client = client
        self._path = f"{JOBS}/{name}"
        self._rank = rank
        self._offsets: dict[str, int] = {}

    def read(self, attempt: str | None, tail: int | None = None) -> bytes:
        """Return new output of an attempt, or of the newest; the first read may be a tail."""
        offset = self._offsets.get(attempt or "", 0)
        last = tail if tail and not offset and tail <= _MOST_LINES else None
        query = {"rank": self._rank, "attempt": attempt, "offset": offset or None, "tail": last}
        given = {name: str(value) for name, value in query.items() if value is not None}
        answer = self._client.send("GET", f"{self._path}/logs", params=given)
        following = answer.headers.get(_NEXT)
        if following is None:  # an older service always sends everything
            fresh = answer.content[offset:]
            self._offsets[attempt or ""] = offset + len(fresh)
            return fresh
        self._offsets[attempt or ""] = int(following)
        return answer.content

    def standing(self) -> tuple[bool, list[Json]]:
        """Return whether the job has ended, and its attempts, oldest first."""
        over = formats.has_ended(self._client.get(self._path))
        return over, self._client.get(f"{self._path}/attempts")["data"]


def _follow(log: RankLog, attempt: str | None, shown: "_Shown") -> None:
    """Print the given attempt, or the newest one and all later attempts."""
    heard = time.monotonic()
    while True:
        try:
            if _round(log, attempt, shown):
                shown.end()
                return
            heard = time.monotonic()
            time.sleep(PAUSE_SECONDS)
        except ServiceUnreachable as trouble:
            if time.monotonic() - heard > OUTAGE_SECONDS:
                raise
            shown.cli.note(f"{trouble.message} Retrying.")
            time.sleep(_AWAY_SECONDS)


def _round(log: RankLog, asked: str | None, shown: "_Shown") -> bool:
    """Print new output; return True if no more can come.

    Reads the states before the text, so that output before the end is not missed.
    """
    over, tried = log.standing()
    if asked is not None:
        wanted = [a for a in tried if asked in (a["id"], str(a["number"]))]
        over = over or any(a["state"] == "ended" for a in wanted)
        if tried and not wanted:
            raise CliError(
                f"Attempt {asked!r} does not exist; the newest is {tried[-1]['number']}.",
                exit_code=ExitCode.NOT_FOUND,
                code="attempt_not_found",
            )
    else:
        wanted = [a for a in tried[-1:] if not shown.number] or [
            a for a in tried if a["number"] >= shown.number
        ]
    for attempt in wanted:
        shown.add(attempt["number"], log.read(attempt["id"], shown.tail))
    return over


class _Shown:
    """Output that is printed so far."""

    def __init__(self, cli: Cli, tail: int | None, *, raw: bool) -> None:
        self.cli = cli
        self._text = _Text(raw=raw)
        self.tail = tail  # applies to the first text only
        self._rest = b""
        self.number = 0  # of the newest attempt that was looked at

    def add(self, number: int, text: bytes) -> None:
        """Print text of an attempt, after a heading if the attempt changed."""
        if number != self.number and self.number:
            self.end()
            self.cli.note(f"== attempt {number} ==", style="bold")
        if self.tail is not None:
            text, self.tail = _last_lines(text, self.tail), None
        self.number = number
        if not self.cli.as_json:
            self._text.write(text)
            return
        *lines, self._rest = (self._rest + text).split(b"\n")
        for line in lines:
            self._line(line)

    def end(self) -> None:
        """Print the last line, even if it is incomplete."""
        self._text.write(b"", final=True)
        if self._rest:
            self._line(self._rest)
        self._rest = b""

    def _line(self, line: bytes) -> None:
        self.cli.line({"attempt": self.number, "line": line.decode(errors="replace")})


def _last_lines(text: bytes, count: int | None) -> bytes:
    if count is None:
        return text
    return b"".join(text.splitlines(keepends=True)[-count:]) if count else b""


class _Text:
    """Writes text in pieces, with line breaks for carriage returns, which progress bars print."""

    def __init__(self, *, raw: bool) -> None:
        self._raw = raw
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="backslashreplace")

    def write(self, piece: bytes, *, final: bool = False) -> None:
        """Write a piece; unless ``final``, a character may continue in the next piece."""
        if self._raw:
            terminal.write_bytes(piece)
            return
        text = self._decoder.decode(piece, final)
        terminal.write_text(text.replace("\r\n", "\n").replace("\r", "\n"))
