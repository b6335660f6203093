"""GET /v1/files/{id}/preview: rows as a base model reads them."""

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query

from contract.choices import Format
from contract.methods import Method, usual_method
from rendering.task import Task
from service.api.deps import PartsDep, Reader
from service.api.jobs import submissions
from service.api.schemas.files import Preview
from service.db.files.files import File
from service.domain.errors import InvalidRequest, ServiceUnavailable, WrongFileFormat
from service.domain.models import lineage
from service.domain.reporting import result_file
from service.domain.training import reinforcement as rl
from service.domain.training.methods import learning_from
from service.domain.training.recipe import DEFAULT_MAX_SEQ_LEN
from service.operations.files import files
from service.operations.jobs.preflights import RowCheck
from service.operations.models.bases import Basis
from service.preflight.checker import CheckInterrupted
from service.storage.store import BlobNotFound
from trainer.contract import Reinforcement

router = APIRouter(prefix="/files", tags=["Files"])
MAX_ROWS = 20
_LAST_LINE = 2**31 - 1
_DEFAULT_ANSWERS = Reinforcement(
    algorithm="grpo", grader="", answers=rl.ANSWERS, max_answer_tokens=rl.PLANNER_CHOOSES
)

Model = Annotated[str, Query(description="name of a base model, or of one that a job has made")]
MethodQuery = Annotated[
    Method | None, Query(description="method of training; default: the usual one for the rows")
]
Length = Annotated[
    int | None,
    Query(ge=2, description="max_seq_len of the job, in tokens; default: as for a job"),
]
Line = Annotated[int, Query(ge=1, le=_LAST_LINE, description="first line of the file to show")]
Limit = Annotated[int, Query(ge=1, le=MAX_ROWS, description="maximum number of rows")]


@router.get("/{file_id}/preview", operation_id="previewFile")
async def preview(
    parts: PartsDep,
    caller: Reader,
    file_id: str,
    model: Model,
    method: MethodQuery = None,
    max_seq_len: Length = None,
    line: Line = 1,
    limit: Limit = 5,
) -> Preview:
    """Show rows rendered through the model's chat template; `trained` marks the trained parts."""
    async with parts.reading.connect() as conn:
        file = await files.get(conn, caller.project_id, file_id)
    chosen = _preview_method(file, method)
    base = await submissions.find_base_model(parts, caller, model)
    if base.method is not None:
        lineage.refuse_other_head(base.name, base.method, chosen)
    task = replace(
        _preview_task(file, chosen, base, max_seq_len), date=parts.now().date().isoformat()
    )
    check = RowCheck(file=file, model=base.staged.model, task=task)
    try:
        rendered = await parts.preflights.preview(check, line, limit)
    except CheckInterrupted as error:
        raise ServiceUnavailable(f"{error} Retry in a moment.") from None
    except BlobNotFound:
        raise files.missing_bytes_error(file.id) from None
    if not rendered["rows"]:
        raise _beyond_end_error(file, line, rendered["last_line"])
    return Preview(
        file=file.id,
        model=base.name,
        method=chosen,
        max_seq_len=task.max_seq_len,
        splits_answers=rendered["splits_answers"],
        data=rendered["rows"],
        has_more=rendered["next_line"] is not None,
        next_line=rendered["next_line"],
    )


def _preview_method(file: File, requested: Method | None) -> Method:
    if file.purpose == result_file.PURPOSE:
        raise InvalidRequest(
            f"{file.id} is a job's result, not a dataset. Preview the job's training file."
        )
    methods = [name.partition(" ")[0] for name in learning_from(file.format)]
    if requested is not None and requested not in methods:
        raise WrongFileFormat(
            f"method: {file.id} holds {file.format.plural}, and method {requested} does not learn "
            f"from them. Choose {' or '.join(methods)}, or leave method out.",
            param="method",
        )
    return requested or usual_method(file.format)


def _preview_task(file: File, method: Method, base: Basis, requested: int | None) -> Task:
    """Return how a job with these settings reads the file, except for the date."""
    longest = base.staged.arch.max_positions
    if requested is not None and requested > longest:
        raise InvalidRequest(
            f"max_seq_len is {requested}, but it must be 2 to {longest}, the longest the base "
            "model takes.",
            param="max_seq_len",
        )
    length = requested or min(DEFAULT_MAX_SEQ_LEN, longest)
    room = length
    if method == "reinforcement":
        room = rl.max_prompt_tokens(rl.with_defaults(_DEFAULT_ANSWERS, length), length)
    return Task(
        folder="",
        method=method,
        has_answers=file.format in (Format.PREFERENCE, Format.RANKING),
        max_seq_len=length,
        room=room,
        date="",
    )


def _beyond_end_error(file: File, line: int, last: int) -> InvalidRequest:
    return InvalidRequest(
        f"line: {file.id} has no row at or after line {line}; its last row is line {last}. "
        "Request an earlier line.",
        param="line",
    )
