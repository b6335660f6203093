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
_NEXT_OFFSET = "x-next-offset"
_MAX_LINES = 10_000  # the most that the service returns for `tail`
_RETRY_SECONDS = 3.0


def show_logs(
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
    log = RankLogReader(cli.client, name, rank)
    if follow:
        _follow_log(log, attempt, _LogPrinter(cli, tail, raw=raw))
        return
    output = _tail_lines(log.read(attempt, tail), tail)
    if cli.as_json:
        document = {"object": "fine_tuning.job.logs", "job": name, "attempt": attempt}
        cli.print_json(document | {"rank": rank, "text": output.decode(errors="replace")}, indent=2)
        return
    _TextWriter(raw=raw).write(output, final=True)
    if not output:
        cli.print_note(
            f"{name} has no output from rank {rank} yet. See its state: rekindle events {name}"
        )


class RankLogReader:
    """Output of one rank in every attempt; keeps an offset per attempt."""

    def __init__(self, client: "ApiClient", name: str, rank: int) -> None:
        self._client = client
        self._path = f"{JOBS}/{name}"
        self._rank = rank
        self._offsets: dict[str, int] = {}

    def read(self, attempt: str | None, tail: int | None = None) -> bytes:
        """Return new output of an attempt, or of the newest; the first read may be a tail."""
        offset = self._offsets.get(attempt or "", 0)
        requested_tail = tail if tail and not offset and tail <= _MAX_LINES else None
        query = {
            "rank": self._rank,
            "attempt": attempt,
            "offset": offset or None,
            "tail": requested_tail,
        }
        params = {name: str(value) for name, value in query.items() if value is not None}
        response = self._client.send("GET", f"{self._path}/logs", params=params)
        next_offset = response.headers.get(_NEXT_OFFSET)
        if next_offset is None:  # an older service always sends everything
            unread = response.content[offset:]
            self._offsets[attempt or ""] = offset + len(unread)
            return unread
        self._offsets[attempt or ""] = int(next_offset)
        return response.content

    def read_state(self) -> tuple[bool, list[Json]]:
        """Return whether the job has ended, and its attempts, oldest first."""
        has_ended = formats.has_ended(self._client.get(self._path))
        return has_ended, self._client.get(f"{self._path}/attempts")["data"]


def _follow_log(log: RankLogReader, attempt: str | None, printer: "_LogPrinter") -> None:
    """Print the given attempt, or the newest one and all later attempts."""
    answered_at = time.monotonic()
    while True:
        try:
            if _print_new_output(log, attempt, printer):
                printer.print_rest()
                return
            answered_at = time.monotonic()
            time.sleep(PAUSE_SECONDS)
        except ServiceUnreachable as error:
            if time.monotonic() - answered_at > OUTAGE_SECONDS:
                raise
            printer.cli.print_note(f"{error.message} Retrying.")
            time.sleep(_RETRY_SECONDS)


def _print_new_output(log: RankLogReader, requested: str | None, printer: "_LogPrinter") -> bool:
    """Print new output; return True if no more can come.

    Reads the states before the text, so that output before the end is not missed.
    """
    has_ended, attempts = log.read_state()
    if requested is not None:
        selected = [a for a in attempts if requested in (a["id"], str(a["number"]))]
        has_ended = has_ended or any(a["state"] == "ended" for a in selected)
        if attempts and not selected:
            raise CliError(
                f"Attempt {requested!r} does not exist; the newest is {attempts[-1]['number']}.",
                exit_code=ExitCode.NOT_FOUND,
                code="attempt_not_found",
            )
    else:
        selected = [a for a in attempts[-1:] if not printer.number] or [
            a for a in attempts if a["number"] >= printer.number
        ]
    for attempt in selected:
        printer.print_output(attempt["number"], log.read(attempt["id"], printer.tail))
    return has_ended


class _LogPrinter:
    """Output that is printed so far."""

    def __init__(self, cli: Cli, tail: int | None, *, raw: bool) -> None:
        self.cli = cli
        self._text = _TextWriter(raw=raw)
        self.tail = tail  # applies to the first text only
        self._partial_line = b""
        self.number = 0  # of the newest attempt that was looked at

    def print_output(self, number: int, text: bytes) -> None:
        """Print text of an attempt, after a heading if the attempt changed."""
        if number != self.number and self.number:
            self.print_rest()
            self.cli.print_note(f"== attempt {number} ==", style="bold")
        if self.tail is not None:
            text, self.tail = _tail_lines(text, self.tail), None
        self.number = number
        if not self.cli.as_json:
            self._text.write(text)
            return
        *lines, self._partial_line = (self._partial_line + text).split(b"\n")
        for line in lines:
            self._print_json_line(line)

    def print_rest(self) -> None:
        """Print the last line, even if it is incomplete."""
        self._text.write(b"", final=True)
        if self._partial_line:
            self._print_json_line(self._partial_line)
        self._partial_line = b""

    def _print_json_line(self, line: bytes) -> None:
        self.cli.print_json({"attempt": self.number, "line": line.decode(errors="replace")})


def _tail_lines(text: bytes, count: int | None) -> bytes:
    if count is None:
        return text
    return b"".join(text.splitlines(keepends=True)[-count:]) if count else b""


class _TextWriter:
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
