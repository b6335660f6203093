"""Graders of reinforcement learning."""

from pydantic import JsonValue

from service.api.schemas.base import Answer


class ValidGrader(Answer):
    """A grader that a job can use."""

    grader: dict[str, JsonValue]
