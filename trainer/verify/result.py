"""The result of a verification (adr/0054)."""

from dataclasses import dataclass, field

from trainer.contract.wire import Message

VERIFIED = "verified"
NOT_VERIFIED = "not_verified"  # with the reason: nothing is known to be wrong
MISMATCH = "mismatch"  # never in a report: the job fails
OFF = "off"


@dataclass(frozen=True, kw_only=True)
class Comparison(Message):
    """The losses of one way to load the files and of another model, compared by token."""

    what: str  # "model", "adapter", or "adapter over 4 bits"
    against: str  # "trainer", or "adapter"
    loss: float | None  # of ``what``; None: not a number
    expected: float | None  # of ``against``
    difference: float | None  # mean absolute difference of the scored values
    tolerance: float  # of the difference

    @property
    def agrees(self) -> bool:
        """Whether the difference is within the tolerance."""
        return self.difference is not None and self.difference <= self.tolerance


@dataclass(frozen=True, kw_only=True)
class Verification(Message):
    """The result of one verification."""

    status: str  # VERIFIED, NOT_VERIFIED, MISMATCH or OFF
    reason: str = ""  # of any status but VERIFIED and OFF
    loaded_with: str = ""  # the libraries and their versions
    device: str = ""  # "cpu" or "cuda"
    file: str = ""  # whose rows were scored
    measure: str = ""  # what the losses are; see `trainer/verify/scores.py`
    sequences: int = 0
    tokens: int = 0  # that the model read in them
    scored: int = 0  # tokens, or scores, that are compared
    trainer_loss: float | None = None  # of the model in the trainer's memory
    loss: float | None = None  # of the exported model
    base_loss: float | None = None  # of the base model; None: it has no such head, or no memory
    comparisons: tuple[Comparison, ...] = ()
    seconds: float = field(default=0.0)
