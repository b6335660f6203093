"""Names and limits of a job's members. Standard library only: the domain and nodes import it."""

from enum import StrEnum
from typing import Final

MAX_BATCH: Final = 1024
MAX_EPOCHS: Final = 50
MAX_BETA: Final = 2.0
HIGHEST_MARGIN: Final = 100.0
MAX_ANSWERS: Final = 64
MAX_KEPT: Final = 20  # checkpoints, beside the best and milestones
CHECKPOINTS_KEPT: Final = 3  # the newest; as trainer.contract.head has it


class Format(StrEnum):
    """What every row of a data file is."""

    CHAT = "chat"
    PREFERENCE = "preference"
    PROMPT = "prompt"
    RANKING = "ranking"
    LABELLED = "labelled_text"

    @property
    def sequences(self) -> int:
        """Return how many sequences the trainer makes of a row; of a ranking at least so many.

        Each has its own copy of the prompt. A ranking has one for each of its answers.
        """
        return 2 if self in (Format.PREFERENCE, Format.RANKING) else 1

    @property
    def plural(self) -> str:
        """Return the word for many rows."""
        return f"{self.singular}s"

    @property
    def singular(self) -> str:
        """Return the word for one row."""
        return self.value.replace("_", " ")


class OnExhausted(StrEnum):
    """What becomes of a job whose budget is used up, once it has saved a checkpoint."""

    PAUSE = "pause"
    CANCEL = "cancel"


class OnRisk(StrEnum):
    """What is done when a deadline is about to be missed on Spot."""

    SWITCH = "switch_to_on_demand"
    NOTIFY = "notify"
    CANCEL = "cancel"


class Engine(StrEnum):
    """What runs a job's machines."""

    SCALE_SET = "scale_set"  # a virtual machine scale set of its own
    AZUREML = "azureml"  # a cluster in the Azure Machine Learning workspace


class Scope(StrEnum):
    """What an API key may do. Each scope includes those before it."""

    READ = "read"
    WRITE = "write"
    OPERATOR = "operator"

    def includes(self, needed: "Scope") -> bool:
        """Whether a key of this scope may do what ``needed`` is for."""
        scopes = list(Scope)
        return scopes.index(self) >= scopes.index(needed)


class Priority(StrEnum):
    """Which of a project's own jobs go first; in the order of rising priority."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"
