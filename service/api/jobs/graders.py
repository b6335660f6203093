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
async def validate(parts: PartsDep, caller: Reader, body: ValidateGraderRequest) -> ValidGrader:
    """Return the grader as it came, or what is wrong with it."""
    await parts.graders.check_sources(check_grader(body.grader, "grader"))
    return ValidGrader(grader=body.grader)


@router.post("/run", operation_id="runGrader")
async def run(parts: PartsDep, caller: Writer, body: RunGraderRequest) -> GraderRun:
    """Grade one answer as a training run would.

    Graders of type `python` and `reward_model` are refused, alone and in a `multi`: no code of
    users runs here. Try those with `python -m trainer.graders` on your own machine.
    """
    result = await parts.graders.run(body.grader, body.model_sample, body.item or {})
    faults = _NO_ERRORS | dict.fromkeys(result["faults"], True)
    errors = GraderErrors.model_validate(faults | {"details": result["details"] or None})
    return GraderRun(
        reward=result["reward"],
        metadata=GraderMetadata(
            name=str(body.grader.get("name", "")),
            type=str(body.grader["type"]),
            errors=errors,
            execution_time=result["seconds"],
            scores=result["rewards"],
            token_usage=None,
            sampled_model_name=None,
        ),
        sub_rewards=result["rewards"],
        model_grader_token_usage_per_model={},
    )
