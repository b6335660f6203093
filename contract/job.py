"""The request for a job: OpenAI's members, and Rekindle's."""

from typing import Annotated

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from contract.integrations import IntegrationRequest
from contract.methods import MethodRequest
from contract.strict import HyperparametersRequest, Strict
from contract.terms import InfrastructureRequest, Metadata, TermsRequest
from contract.training import TrainingRequest

_Pairs = Annotated[Metadata, Field(max_length=16)]


class JobRequest(Strict):
    """The body of POST /v1/fine_tuning/jobs."""

    model: str = Field(min_length=1, max_length=512)
    """Base model, or the final model or a checkpoint of a job: ft:..."""
    training_file: str = Field(min_length=1)
    """Id of an uploaded file of rows to train on."""
    validation_file: str | None = Field(default=None, min_length=1)
    """Id of an uploaded file of rows for validation only."""
    suffix: str | None = Field(default=None, min_length=1, max_length=64)
    """Your part of the new model's name."""
    seed: int | None = Field(default=None, ge=0, le=2_147_483_647)
    """Random seed; default: drawn at creation."""
    metadata: _Pairs | None = None
    """Up to 16 pairs of text that are kept with the job."""
    integrations: Annotated[list[IntegrationRequest], Field(max_length=5)] | None = None
    """Experiment trackers that receive the metrics of each step; one of each type."""
    hyperparameters: HyperparametersRequest | None = None
    """Deprecated; use method.TYPE.hyperparameters."""
    method: MethodRequest | None = None
    """How to train; default: supervised."""
    plan: str | None = Field(default=None, max_length=64)
    """Id of a plan of the same request: the job starts as planned."""
    training_type: int | str | None = Field(default=None, alias="trainingType", exclude=True)
    """Sent by Azure OpenAI's clients; no effect: `infrastructure` says where a job trains."""
    register_model: bool = False
    """Register the final model in the deployment's Azure ML workspace, which it must have."""
    infrastructure: InfrastructureRequest = InfrastructureRequest()
    """Machines, and limits of cost, time and region."""
    training: TrainingRequest = TrainingRequest()
    """Options of the training; the planner chooses omitted ones."""

    @field_validator("suffix")
    @classmethod
    def refuse_control_characters(cls, value: str | None) -> str | None:
        """Reject characters that would break a name in a terminal, URL or header."""
        if value and not value.isprintable():
            raise PydanticCustomError(
                "unsupported", "control characters cannot be part of a name: leave them out"
            )
        return value

    @field_validator("integrations")
    @classmethod
    def refuse_repeated_types(
        cls, value: list[IntegrationRequest] | None
    ) -> list[IntegrationRequest] | None:
        """Reject two trackers of one type, as a job has one run in each."""
        if value and len({integration.type for integration in value}) < len(value):
            raise PydanticCustomError("unsupported", "each type of tracker may be named once")
        return value


class JobPatch(Strict):
    """The body of PATCH: members of a live job that may change."""

    infrastructure: TermsRequest = TermsRequest()
    """Limits to change; omitted ones stay, null removes a limit."""
    metadata: _Pairs | None = None
    """New pairs in place of the old ones."""
