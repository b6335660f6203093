"""/v1/fine_tuning/jobs/{id}/logs: the output of a rank, from Blob, by byte offset.

Headers of the answer: where it begins (``x-log-offset``), where to continue (``x-next-offset``),
which attempt it is of (``x-log-attempt``) and whether it is complete (``x-log-complete``).
"""

import codecs
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response, StreamingResponse

from service.api.deps import Parts, PartsDep, Reader
from service.api.http import streams
from service.api.http.responses import TEXT
from service.db.attempts import attempts
from service.db.attempts.attempts import AttemptRow
from service.db.core import notify
from service.db.jobs import job_versions
from service.domain.errors import AttemptNotFound, InvalidRequest
from service.domain.states import AttemptState
from service.operations.jobs import jobs
from service.storage.store import BlobNotFound
from trainer.contract import log_path

router = APIRouter(prefix="/fine_tuning/jobs", tags=["Fine-tuning"])
_LINE_BYTES = 256  # bytes; a guess, only to read the end of a log in few pieces
_MAX_LINES = 10_000
_MAX_TAIL_BYTES = 8 * 2**20  # bytes
_MAX_PIECE_BYTES = 64 * 1024  # bytes of one server-sent event
_DIGITS = 19  # of the largest offset, and more
_RECHECK_SECONDS = 2.0  # of a log that is followed


@router.get(
    "/{job_id}/logs",
    operation_id="retrieveFineTuningLogs",
    response_class=Response,
    responses={200: {"content": TEXT}},
)
async def get_logs(
    parts: PartsDep,
    caller: Reader,
    job_id: str,
    attempt: str | None = None,
    rank: Annotated[int, Query(ge=0)] = 0,
    tail: Annotated[
        int | None, Query(ge=1, le=_MAX_LINES, description="Number of trailing lines to show.")
    ] = None,
    offset: Annotated[
        int | None, Query(ge=0, description="Header `x-next-offset` of the answer before.")
    ] = None,
) -> Response:
    """Return the log of one rank of one attempt (by default the newest), as plain text."""
    if tail is not None and offset is not None:
        raise InvalidRequest("Give tail or offset: both say where to begin.", param="tail")
    async with parts.reading.connect() as conn:
        await jobs.get(conn, caller.project_id, job_id)
        rows = await attempts.of_job(conn, job_id)
    chosen = _find_attempt(rows, attempt)
    path = log_path(chosen.id, rank)
    size = await _size(parts, job_id, path)
    start = offset or 0
    if tail is not None:
        start = await _tail_offset(parts, job_id, path, size, tail)
    headers = {
        "x-log-offset": str(start),
        "x-next-offset": str(max(size, start)),
        "x-log-attempt": chosen.id,
        "x-log-complete": str(chosen.state is AttemptState.ENDED).lower(),
        "content-length": str(max(size - start, 0)),
    }
    text = _stream_range(parts, job_id, path, start, size)
    return StreamingResponse(text, media_type="text/plain; charset=utf-8", headers=headers)


@router.get(
    "/{job_id}/logs/stream",
    operation_id="streamFineTuningLogs",
    response_class=Response,
    responses=streams.STREAM,
)
async def stream_logs(
    parts: PartsDep,
    caller: Reader,
    job_id: str,
    attempt: str | None = None,
    rank: Annotated[int, Query(ge=0)] = 0,
    last_event_id: streams.LastEventId = None,
) -> Response:
    """Stream the log of one rank of one attempt, from the beginning until the attempt is over."""
    start = _parse_event_id(last_event_id) if last_event_id else 0
    async with parts.reading.connect() as conn:
        await jobs.get(conn, caller.project_id, job_id)
        rows = await attempts.of_job(conn, job_id)
    stream = _follow_log(parts, job_id, _find_attempt(rows, attempt), rank, start)
    return streams.stream_response(parts, caller, stream)


def _parse_event_id(event_id: str) -> int:
    """Return the offset in the id of an event."""
    if event_id.isascii() and event_id.isdigit() and len(event_id) < _DIGITS:
        return int(event_id)
    raise InvalidRequest(f"last-event-id: {event_id:.40} is not an offset.", param="last-event-id")


async def _follow_log(
    parts: Parts, job_id: str, attempt: AttemptRow, rank: int, offset: int
) -> streams.EventStream:
    """Yield the log as it grows until the attempt ends; each event's id is the next offset."""
    path = log_path(attempt.id, rank)
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    with parts.drain.polling(job_versions.topic(job_id)) as changed:
        while not parts.drain.has_begun:
            async with parts.reading.connect() as conn:
                rows = await attempts.of_job(conn, job_id)
            is_over = _find_attempt(rows, attempt.id).state is AttemptState.ENDED
            size = min(await _size(parts, job_id, path), offset + _MAX_PIECE_BYTES)
            if size > offset:
                pieces = [p async for p in _stream_range(parts, job_id, path, offset, size)]
                offset = size
                data = {"offset": offset, "text": decoder.decode(b"".join(pieces))}
                yield streams.event("log", str(offset), data)
            elif is_over:
                yield streams.DONE
                return
            else:
                await notify.wait(changed, _RECHECK_SECONDS)


def _find_attempt(rows: list[AttemptRow], id_or_number: str | None) -> AttemptRow:
    if not rows:
        raise AttemptNotFound("The job has had no machines yet, so it has no logs.")
    if id_or_number is None:
        return rows[-1]
    for attempt in rows:
        if id_or_number in (attempt.id, str(attempt.number)):
            return attempt
    raise InvalidRequest(
        f"attempt={id_or_number!r}: the job has no such attempt. List them: .../attempts.",
        param="attempt",
    )


async def _size(parts: Parts, job_id: str, path: str) -> int:
    """Return the log's size, read once: later output belongs to the next answer."""
    try:
        return (await parts.store.properties(job_id, path)).size
    except BlobNotFound:
        return 0  # nothing printed yet


async def _stream_range(
    parts: Parts, job_id: str, path: str, start: int, end: int
) -> AsyncIterator[bytes]:
    remaining = end - start
    if remaining <= 0:
        return
    async for chunk in parts.store.stream(job_id, path, offset=start):
        yield chunk[:remaining]
        remaining -= len(chunk)
        if remaining <= 0:
            return


async def _tail_offset(parts: Parts, job_id: str, path: str, size: int, lines: int) -> int:
    """Return where the last ``lines`` lines begin, within the last 8 MiB."""
    window = min(lines * _LINE_BYTES, _MAX_TAIL_BYTES)
    while True:
        start = max(size - window, 0)
        pieces = [p async for p in _stream_range(parts, job_id, path, start, size)]
        text = b"".join(pieces)
        offset = _last_lines(text, lines, is_complete=start == 0)
        if offset is not None:
            return start + offset
        if window >= _MAX_TAIL_BYTES:
            return start + text.find(b"\n") + 1
        window = min(window * 4, _MAX_TAIL_BYTES)


def _last_lines(text: bytes, lines: int, *, is_complete: bool) -> int | None:
    """Return where the last lines begin in the text; None when more text is needed."""
    position = len(text) - text.endswith(b"\n")
    for _ in range(lines):
        position = text.rfind(b"\n", 0, position)
        if position < 0:
            return 0 if is_complete else None
    return position + 1
