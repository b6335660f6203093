"""What every method of training may be told, and how strictly requests are read."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Auto = Literal["auto"]


class Strict(BaseModel):
    """No guessing: unknown members and wrong types are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class HyperparametersRequest(Strict):
    """OpenAI's three, which every method has."""

    batch_size: Auto | Annotated[int, Field(ge=1, le=1024)] = "auto"
    learning_rate_multiplier: Auto | Annotated[float, Field(gt=0, le=10_000)] = "auto"
    n_epochs: Auto | Annotated[int, Field(ge=1, le=50)] = "auto"
