"""GET /v1/files/{id}/preview: rows as a base model would read them."""

from typing import Annotated, Any, cast

from fastapi import APIRouter, Query

from rendering.task import Task
from service.api import submissions
from service.api.deps import CallerDep, PartsDep
from service.domain.errors import InvalidRequest, ServiceUnavailable
from service.domain.method import Method, learning_from
from service.domain.recipe import DEFAULT_MAX_SEQ_LEN
from service.domain.row import Format
from service.operations import files
from service.operations.preflights import Reading
from service.preflight.checker import CheckInterrupted

router = APIRouter(prefix="/files", tags=["files"])
MOST_ROWS = 20
_FIRST_METHOD: dict[Format, Method] = {
    Format.CHAT: "supervised",
    Format.PREFERENCE: "dpo",
    Format.RANKING: "reward",
    Format.PROMPT: "reinforcement",
    Format.LABELLED: "classification",
}


@router.get("/{file_id}/preview")
async def preview(
    parts: PartsDep,
    caller: CallerDep,
    file_id: str,
    model: Annotated[str, Query(description="A staged base model, or one that a job has made.")],
    method: Annotated[str, Query(description="Default: the first one for the file's rows.")] = "",
    max_seq_len: Annotated[
        int | None, Query(ge=16, description="Tokens. Default: as for a job.")
    ] = None,
    line: Annotated[int, Query(ge=1, description="Line of the file to begin with.")] = 1,
    limit: Annotated[int, Query(ge=1, le=MOST_ROWS, description="Rows.")] = 5,
) -> dict[str, Any]:
    """Show rows rendered through the model's chat template, in segments.

    A segment's `kind` is `trained` (targets of the loss), `context` (read only) or `cut` (beyond
    max_seq_len). Rows that cannot train have `problems` and may have no examples.
    """
    async with parts.engine.connect() as conn:
        file = await files.get(conn, caller.project_id, file_id)
    chosen = _method(file.format, method)
    base = await submissions.base_model(parts, caller, model)
    longest = base.staged.arch.max_positions
    length = min(max_seq_len or DEFAULT_MAX_SEQ_LEN, longest)
    task = Task(
        folder="",
        method=chosen,
        has_answers=file.format in (Format.PREFERENCE, Format.RANKING),
        max_seq_len=length,
        room=length,
        date=parts.now().date().isoformat(),
    )
    reading = Reading(file=file, model=base.staged.model, task=task)
    try:
        rows = await parts.preflights.preview(reading, line, limit)
    except CheckInterrupted as error:
        raise ServiceUnavailable(f"{error} Ask again.") from None
    return {
        "object": "file.preview",
        "file": file.id,
        "model": base.name,
        "method": chosen,
        "max_seq_len": length,
        "data": rows,
    }


def _method(rows: Format, asked: str) -> Method:
    if not asked:
        return _FIRST_METHOD[rows]
    known = [name.split(" ")[0] for name in learning_from(rows)]
    if asked not in known:
        raise InvalidRequest(
            f"method: {asked!r} does not learn from {rows.plural}. Use {' or '.join(known)}.",
            param="method",
        )
    return cast("Method", asked)
