"""/v1/fine_tuning/alpha/graders: whether a grader is right, before a job is made with it."""

from typing import Any, NoReturn

from fastapi import APIRouter, Request

from service.api import bodies
from service.api.deps import CallerDep
from service.api.job_requests import parse_as
from service.api.reinforcement_requests import ValidateGraderRequest, check_grader
from service.domain.errors import NotImplementedHere

router = APIRouter(prefix="/fine_tuning/alpha/graders", tags=["fine-tuning"])
_LONGEST_BODY = 1024 * 1024


@router.post("/validate")
async def validate(request: Request, caller: CallerDep) -> dict[str, Any]:
    """The grader as it came, or what is wrong with it."""
    body = await bodies.read(request, _LONGEST_BODY)
    asked = parse_as(ValidateGraderRequest, body)
    check_grader(asked.grader, "grader")
    return {"grader": asked.grader}


@router.post("/run", response_model=None)
async def run(caller: CallerDep) -> NoReturn:
    """Refused: graders may be programs, and programs of users run on their jobs' machines only."""
    raise NotImplementedHere(
        "This service runs no graders itself. Try yours on your own machine: "
        "python -m trainer.graders --help."
    )
