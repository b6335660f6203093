"""Graders of reinforcement learning."""

from pydantic import JsonValue

from service.api.schemas.base import Answer


class ValidGrader(Answer):
    """A grader that a job can use."""

    grader: dict[str, JsonValue]


class GraderErrors(Answer):
    """What went wrong: OpenAI's members, and `details` of ours."""

    formula_parse_error: bool
    """`calculate_output` has no value, as for 1 / 0."""
    sample_parse_error: bool
    """A template reads `sample.output_json`, and the answer is not JSON."""
    truncated_observation_error: bool
    unresponsive_reward_error: bool
    invalid_variable_error: bool
    """A template reads a member that the item or the answer does not have."""
    other_error: bool
    python_grader_server_error: bool
    python_grader_server_error_type: str | None
    python_grader_runtime_error: bool
    python_grader_runtime_error_details: str | None
    model_grader_server_error: bool
    model_grader_refusal_error: bool
    model_grader_parse_error: bool
    model_grader_server_error_details: str | None
    details: str | None
    """The error in words, as a training run logs it."""


class GraderMetadata(Answer):
    """Result of a run."""

    name: str
    type: str
    errors: GraderErrors
    execution_time: float
    """Seconds."""
    scores: dict[str, float]
    """Of a multi grader, the grade of each part."""
    token_usage: int | None
    """Always null: no model is asked."""
    sampled_model_name: str | None
    """Always null: no model is asked."""


class GraderRun(Answer):
    """The grade of one answer."""

    reward: float
    """The higher the better; 0 where there is an error."""
    metadata: GraderMetadata
    sub_rewards: dict[str, float]
    """Of a multi grader, the grade of each part."""
    model_grader_token_usage_per_model: dict[str, JsonValue]
    """Always empty: no model is asked."""
