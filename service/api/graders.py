"""/v1/fine_tuning/alpha/graders: whether a grader is right, before a job is made with it."""

from typing import NoReturn

from fastapi import APIRouter

from contract.reinforcement import ValidateGraderRequest
from service.api.deps import CallerDep
from service.api.job_requests import check_grader
from service.api.requests import JsonRoute
from service.api.schemas.graders import ValidGrader
from service.domain.errors import NotImplementedHere

router = APIRouter(prefix="/fine_tuning/alpha/graders", tags=["Fine-tuning"], route_class=JsonRoute)


@router.post("/validate", operation_id="validateGrader")
async def validate(caller: CallerDep, asked: ValidateGraderRequest) -> ValidGrader:
    """Return the grader as it came, or what is wrong with it."""
    check_grader(asked.grader, "grader")
    return ValidGrader(grader=asked.grader)


@router.post("/run", operation_id="runGrader", response_model=None)
async def run(caller: CallerDep) -> NoReturn:
    """Refused: graders may be programs, and programs of users run on their jobs' machines only."""
    raise NotImplementedHere(
        "This service runs no graders itself. Try yours on your own machine: "
        "python -m trainer.graders --help."
    )
