"""Base models of requests: strict types, no unknown members."""

from typing import Annotated, Literal, get_args

from pydantic import ConfigDict, Field

from contract.choices import MAX_BATCH, MAX_EPOCHS
from contract.described import Described

Auto = Literal["auto"]


class Strict(Described):
    """A request model that rejects unknown members and wrong types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class HyperparametersRequest(Strict):
    """OpenAI's three hyperparameters, which every method has."""

    batch_size: Auto | Annotated[int, Field(ge=1, le=MAX_BATCH)] = "auto"
    """Examples per optimizer step; `auto` takes it from the number of examples."""
    learning_rate_multiplier: Auto | Annotated[float, Field(gt=0, le=10_000)] = "auto"
    """Factor of the method's usual learning rate; `auto` is 1."""
    n_epochs: Auto | Annotated[int, Field(ge=1, le=MAX_EPOCHS)] = "auto"
    """Passes over the training file; `auto` takes it from the number of examples."""


class OptionsRequest(Strict):
    """Options that every method has."""

    hyperparameters: HyperparametersRequest | None = None
    """Batch size, learning rate and epochs."""

    @property
    def own(self) -> dict[str, object]:
        """All options except OpenAI's three hyperparameters, by name, on one level."""
        hyper = (self.hyperparameters or self.kind_of_hyperparameters()()).model_dump()
        extra = {n: v for n, v in hyper.items() if n not in HyperparametersRequest.model_fields}
        return self.model_dump(exclude={"hyperparameters"}) | extra

    @classmethod
    def kind_of_hyperparameters(cls) -> type[HyperparametersRequest]:
        """Return the class of this method's hyperparameters."""
        kind: type[HyperparametersRequest] = get_args(
            cls.model_fields["hyperparameters"].annotation
        )[0]
        return kind
