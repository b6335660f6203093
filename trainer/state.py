"""The identity of a training process, and the position of the run."""

from dataclasses import dataclass, field

from trainer.contract import StepMetrics
from trainer.engine.loss_spikes import LossHistory
from trainer.rollout.experience import ReplayState


@dataclass(frozen=True, kw_only=True)
class RankIdentity:
    """One process of one generation's torchrun world."""

    rank: int
    local_rank: int
    world_size: int
    generation: int
    run_spec_sha256: str
    nonce: str  # makes the folders of this generation's saves its own


@dataclass(frozen=True, kw_only=True)
class TrainingState:
    """The run between two training steps, beyond engine and random generators."""

    step: int = 0  # optimizer steps finished
    consumed_samples: int = 0  # the data cursor
    metrics: StepMetrics | None = None  # of the last step
    experience: ReplayState = field(default_factory=ReplayState)  # this rank's answers
    kl_beta: float | None = None  # of the next step, where it is steered
    tokens: int | None = 0  # trained so far; None: begun by a trainer that did not count them
    valid_loss_before: float | None = None  # of what the run began with
    losses: LossHistory | None = None  # that a spike would stand out of, where one is looked for
    unmoved: bool = False  # steps were done, and none of them has changed the model

    def after_step(
        self,
        samples: int,
        metrics: StepMetrics,
        experience: ReplayState | None = None,
        kl_beta: float | None = None,
        losses: LossHistory | None = None,
        *,
        moved: bool = True,
    ) -> "TrainingState":
        """Return the state one step later; ``moved``: the step has changed the model."""
        return TrainingState(
            step=self.step + 1,
            consumed_samples=self.consumed_samples + samples,
            metrics=metrics,
            experience=experience or ReplayState(),
            kl_beta=kl_beta,
            tokens=None if self.tokens is None else self.tokens + metrics.tokens,
            valid_loss_before=self.valid_loss_before,
            losses=losses,
            unmoved=not moved and (self.step == 0 or self.unmoved),
        )
