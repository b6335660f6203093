"""Who this process is in its generation, and how far the run has come."""

from dataclasses import dataclass, field

from trainer.contract import StepMetrics
from trainer.engine.loss_spikes import Seen
from trainer.rollout.experience import Experience


@dataclass(frozen=True, kw_only=True)
class Identity:
    """One process of one generation's torchrun world."""

    rank: int
    local_rank: int
    world_size: int
    generation: int
    run_spec_sha256: str
    nonce: str  # makes the folders of this generation's saves its own


@dataclass(frozen=True, kw_only=True)
class State:
    """The run between two training steps, beyond what the engine and the generators hold."""

    step: int = 0  # optimizer steps finished
    consumed_samples: int = 0  # the data cursor
    metrics: StepMetrics | None = None  # of the last step
    experience: Experience = field(default_factory=Experience)  # this rank's answers
    kl_beta: float | None = None  # of the next step, where it is steered
    tokens: int | None = 0  # trained so far; None: begun by a trainer that did not count them
    valid_loss_before: float | None = None  # of what the run began with
    losses: Seen | None = None  # that a spike would stand out of, where one is looked for
    unmoved: bool = False  # steps were done, and none of them has changed the model

    def after(
        self,
        samples: int,
        metrics: StepMetrics,
        experience: Experience | None = None,
        kl_beta: float | None = None,
        losses: Seen | None = None,
        *,
        moved: bool = True,
    ) -> "State":
        """The state one training step later; ``moved``: the step has changed the model."""
        return State(
            step=self.step + 1,
            consumed_samples=self.consumed_samples + samples,
            metrics=metrics,
            experience=experience or Experience(),
            kl_beta=kl_beta,
            tokens=None if self.tokens is None else self.tokens + metrics.tokens,
            valid_loss_before=self.valid_loss_before,
            losses=losses,
            unmoved=not moved and (self.step == 0 or self.unmoved),
        )
