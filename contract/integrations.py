"""The member ``integrations``: experiment trackers that receive a job's metrics live."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from contract.strict import Strict


def _printable(text: str) -> str:
    if not text.isprintable():
        raise PydanticCustomError("unsupported", "control characters are not allowed")
    return text


_Name = Annotated[str, Field(min_length=1, max_length=128), AfterValidator(_printable)]


class WandbRequest(Strict):
    """A project of Weights & Biases."""

    project: _Name
    """Project of the run."""
    name: _Name | None = None
    """Display name of the run; default: the job's id."""
    entity: _Name | None = None
    """Team or user that owns the project; default: that of the deployment's key."""
    tags: list[_Name] = Field(default=[], max_length=50)
    """Tags of the run."""


class MlflowRequest(Strict):
    """An experiment of the deployment's MLflow server."""

    experiment: _Name
    """Experiment of the run; created if missing."""
    run_name: _Name | None = None
    """Name of the run; default: the job's id."""
    tags: dict[_Name, _Name] = Field(default_factory=dict, max_length=50)
    """Tags of the run."""

    @model_validator(mode="after")
    def refuse_own_tags(self) -> Self:
        """Reject reserved tags, by which a resumed run is found."""
        if any(name.startswith("rekindle.") for name in self.tags):
            raise PydanticCustomError("unsupported", "tags that begin with rekindle. are reserved")
        return self


class IntegrationRequest(Strict):
    """One tracker: a type, and options of that type only."""

    type: Literal["wandb", "mlflow", "tensorboard"]
    """Tracker that receives the metrics."""
    wandb: WandbRequest | None = None
    """Options of type `wandb`."""
    mlflow: MlflowRequest | None = None
    """Options of type `mlflow`."""

    @model_validator(mode="after")
    def require_own_options(self) -> Self:
        """Reject options of another type, and a type without its options."""
        present = {name for name in ("wandb", "mlflow") if getattr(self, name) is not None}
        if present != ({self.type} - {"tensorboard"}):
            expected = (
                "no options" if self.type == "tensorboard" else f"the member {self.type} only"
            )
            raise PydanticCustomError("unsupported", f"type {self.type} takes {expected}")
        return self


def to_openai(integrations: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """Return stored integrations in OpenAI's form: the type and its options."""
    return [
        {name: item[name] for name in ("type", item["type"]) if item.get(name) is not None}
        for item in integrations or ()
    ]
