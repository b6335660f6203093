"""/v1/fine_tuning/alpha/graders: validate and run a grader before a job uses it."""

from fastapi import APIRouter

from contract.reinforcement import RunGraderRequest, ValidateGraderRequest
from service.api.deps import PartsDep, Reader, Writer
from service.api.http.requests import JsonRoute
from service.api.jobs.job_requests import check_grader
from service.api.schemas.graders import GraderErrors, GraderMetadata, GraderRun, ValidGrader

router = APIRouter(prefix="/fine_tuning/alpha/graders", tags=["Fine-tuning"], route_class=JsonRoute)
_NO_ERRORS: dict[str, bool | None] = {
    name: False if member.annotation is bool else None
    for name, member in GraderErrors.model_fields.items()
}


@router.post("/validate", operation_id="validateGrader")
async def validate(parts: PartsDep, caller: Reader, asked: ValidateGraderRequest) -> ValidGrader:
    """Return the grader as it came, or what is wrong with it."""
    await parts.graders.check_sources(check_grader(asked.grader, "grader"))
    return ValidGrader(grader=asked.grader)


@router.post("/run", operation_id="runGrader")
async def run(parts: PartsDep, caller: Writer, asked: RunGraderRequest) -> GraderRun:
    """Grade one answer as a training run would.

    Graders of type `python` and `reward_model` are refused, alone and in a `multi`: no code of
    users runs here. Try those with `python -m trainer.graders` on your own machine.
    """
    told = await parts.graders.run(asked.grader, asked.model_sample, asked.item or {})
    faults = _NO_ERRORS | dict.fromkeys(told["faults"], True)
    errors = GraderErrors.model_validate(faults | {"details": told["details"] or None})
    return GraderRun(
        reward=told["reward"],
        metadata=GraderMetadata(
            name=str(asked.grader.get("name", "")),
            type=str(asked.grader["type"]),
            errors=errors,
            execution_time=told["seconds"],
            scores=told["rewards"],
            token_usage=None,
            sampled_model_name=None,
        ),
        sub_rewards=told["rewards"],
        model_grader_token_usage_per_model={},
    )
