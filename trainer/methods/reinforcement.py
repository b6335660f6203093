"""The losses of reinforcement learning, over the tokens that the model has answered with.

With r the ratio of a token's probability to the one it had when it was drawn, A its advantage, c
the clip, b the weight of the KL penalty, and q its probability by the base model over today's:

    grpo   max(-r A, -clip(r, 1 - c, 1 + c) A) + b r (q - log q - 1)
    rloo   the first part alone, with r of a whole answer
    ppo    the first part, and a tenth of 1/2 max((v - R)^2, (v' - R)^2), v' clipped to c around
           the old value

(Schulman et al. 2017, equation 7; Shao et al. 2024, equation 3, whose penalty is Schulman's k3,
here times r as DeepSeek-V3.2 has it, so that its gradient is that of the divergence; Ahmadian et
al. 2024, section 3. Where the others have the penalty it is in the reward.) A step is the mean over
all its tokens, as in DAPO (Yu et al. 2025), of rloo over its answers.
"""

from typing import Any

import torch

from trainer.contract import Reinforcement, RunSpec
from trainer.data.batch import IGNORED, Batch
from trainer.methods.descriptor import MethodDescriptor, MethodInputs
from trainer.methods.forward import log_probabilities, sum_by_sequence, trained_token_counts
from trainer.methods.interface import BatchScores, Method
from trainer.rollout.answer_batch import AnswerBatch

VALUE_SHARE = 0.1  # weight of the value loss (TRL's PPOConfig)


class GrpoLoss(Method):
    """GRPO, and the base of the other losses."""

    def __init__(self, settings: Reinforcement) -> None:
        self._settings = settings

    def units(self, batch: Batch) -> int:
        """Return the number of answer tokens."""
        return batch.targets

    def scores(self, model: Any, batch: Batch) -> BatchScores:  # noqa: ANN401 - untyped here
        """Score each token."""
        assert isinstance(batch, AnswerBatch)
        logp_N = log_probabilities(model, batch, self._settings.temperature)
        log_ratio_N = logp_N - _behaviour_log_probabilities(batch, logp_N)
        loss_N = self._clipped(log_ratio_N, batch.advantages)
        if batch.beta and len(batch.reference):
            log_q_N = batch.reference - logp_N
            # r (q - log q - 1), with one exponential less that could overflow
            away_N = (log_ratio_N + log_q_N).exp() - log_ratio_N.exp() * (log_q_N + 1)
            loss_N = loss_N + batch.beta * away_N
        return BatchScores(loss=loss_N.sum(), correct=_zero_like(loss_N))

    def _clipped(self, log_ratio: torch.Tensor, advantage: torch.Tensor) -> torch.Tensor:
        ratio, clip = log_ratio.exp(), self._settings.clip
        return torch.max(-ratio * advantage, -ratio.clamp(1 - clip, 1 + clip) * advantage)


class RlooLoss(GrpoLoss):
    """RLOO: an answer is one action."""

    def units(self, batch: Batch) -> int:
        """Return the number of answers."""
        return int((trained_token_counts(batch) > 0).sum())

    def scores(self, model: Any, batch: Batch) -> BatchScores:  # noqa: ANN401 - untyped here
        """Score each answer."""
        assert isinstance(batch, AnswerBatch)
        logp_N = log_probabilities(model, batch, self._settings.temperature)
        log_ratio_B = sum_by_sequence(batch, logp_N - _behaviour_log_probabilities(batch, logp_N))
        tokens_B = trained_token_counts(batch).clamp(min=1)
        # The same for each of its tokens.
        advantage_B = sum_by_sequence(batch, batch.advantages) / tokens_B
        loss = self._clipped(log_ratio_B, advantage_B).sum()
        return BatchScores(loss=loss, correct=_zero_like(loss))


class PpoLoss(GrpoLoss):
    """Each token is an action; a critic estimates the return before it."""

    def scores(self, model: Any, batch: Batch) -> BatchScores:  # noqa: ANN401 - untyped here
        """Score each token and each value."""
        assert isinstance(batch, AnswerBatch)
        logp_N, value_N = log_probabilities_and_values(model, batch, self._settings.temperature)
        policy_N = self._clipped(
            logp_N - _behaviour_log_probabilities(batch, logp_N), batch.advantages
        )
        loss = policy_N.sum() + VALUE_SHARE * self._value_loss(value_N, batch).sum()
        return BatchScores(loss=loss, correct=_zero_like(loss))

    def _value_loss(self, value_N: torch.Tensor, batch: AnswerBatch) -> torch.Tensor:
        clip = self._settings.clip
        near_N = batch.values + (value_N - batch.values).clamp(-clip, clip)
        return 0.5 * torch.max((value_N - batch.returns) ** 2, (near_N - batch.returns) ** 2)


def log_probabilities_and_values(
    model: Any,  # noqa: ANN401
    batch: Batch,
    temperature: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log-probability and critic's value of each trained token, fp32."""
    model_with_values = _CallWithValues(model)
    logp_N = log_probabilities(model_with_values, batch, temperature)
    return logp_N, model_with_values.values_BT[batch.labels != IGNORED]


class _CallWithValues:
    """Calls an ActorCritic for both outputs, in the one pass before the engine's backward."""

    def __init__(self, model: Any) -> None:  # noqa: ANN401
        self._model = model
        self.values_BT = torch.empty(0)

    def __call__(self, **inputs: Any) -> Any:  # noqa: ANN401
        output = self._model(**inputs, with_values=True)
        self.values_BT = output.token_values
        return output


def make_policy_loss(settings: Reinforcement) -> GrpoLoss:
    """Build the loss of the requested algorithm."""
    kinds = {"grpo": GrpoLoss, "rloo": RlooLoss, "ppo": PpoLoss}
    if settings.algorithm not in kinds:
        raise ValueError(
            f"reinforcement.algorithm {settings.algorithm!r} is not known; use {', '.join(kinds)}"
        )
    return kinds[settings.algorithm](settings)


def _behaviour_log_probabilities(batch: AnswerBatch, logp_N: torch.Tensor) -> torch.Tensor:
    """Return the stored log-probabilities; else today's: the policy is the same."""
    return batch.behaviour if len(batch.behaviour) else logp_N.detach()


def _zero_like(like: torch.Tensor) -> torch.Tensor:
    """Return 0: no token is right or wrong."""
    return like.new_zeros(())


def _make(inputs: MethodInputs) -> GrpoLoss:
    assert inputs.spec.reinforcement is not None
    return make_policy_loss(inputs.spec.reinforcement)


def _name(spec: RunSpec) -> str:
    assert spec.reinforcement is not None
    return f"reinforcement learning from grades, {spec.reinforcement.algorithm.upper()}"


KIND = MethodDescriptor(
    make=_make,
    name=_name,
    target="room for an answer: the prompts are too long",
    remedy="Raise training.max_seq_len or shorten the prompts.",
    one_pass=False,
)
