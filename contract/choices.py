"""Names and limits of a job's members. Standard library only: the domain and nodes import it."""

from enum import StrEnum
from typing import Final

MAX_BATCH: Final = 1024
MAX_EPOCHS: Final = 50
MAX_BETA: Final = 2.0
HIGHEST_MARGIN: Final = 100.0
MAX_ANSWERS: Final = 64
MAX_KEPT: Final = 20  # checkpoints, besides the best one and milestones
CHECKPOINTS_KEPT: Final = 3  # newest checkpoints; equals trainer.contract.head's


class Format(StrEnum):
    """Format of every row of a data file."""

    CHAT = "chat"
    PREFERENCE = "preference"
    PROMPT = "prompt"
    RANKING = "ranking"
    LABELLED = "labelled_text"

    @property
    def sequences(self) -> int:
        """Number of sequences that the trainer makes of a row; of a ranking, at least.

        Each has its own copy of the prompt. A ranking has one for each of its answers.
        """
        return 2 if self in (Format.PREFERENCE, Format.RANKING) else 1

    @property
    def plural(self) -> str:
        """Word for several rows."""
        return f"{self.singular}s"

    @property
    def singular(self) -> str:
        """Word for one row."""
        return self.value.replace("_", " ")


class OnExhausted(StrEnum):
    """Action on a job whose budget is exhausted, once it has saved a checkpoint."""

    PAUSE = "pause"
    CANCEL = "cancel"


class OnRisk(StrEnum):
    """Action when Spot is likely to miss a deadline."""

    SWITCH = "switch_to_on_demand"
    NOTIFY = "notify"
    CANCEL = "cancel"


class Engine(StrEnum):
    """What runs a job's machines."""

    SCALE_SET = "scale_set"  # a virtual machine scale set of its own
    AZUREML = "azureml"  # a cluster in the Azure Machine Learning workspace


class Scope(StrEnum):
    """Permissions of an API key. Each scope includes those before it."""

    READ = "read"
    WRITE = "write"
    OPERATOR = "operator"

    def includes(self, needed: "Scope") -> bool:
        """Return whether a key of this scope has the permission ``needed``."""
        scopes = list(Scope)
        return scopes.index(self) >= scopes.index(needed)


class Priority(StrEnum):
    """Priority among a project's own jobs, in rising order."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"
