"""The member ``method.reinforcement``: OpenAI's members; from ``algorithm`` on, Rekindle's."""

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from contract.choices import MAX_ANSWERS, MAX_BETA
from contract.strict import Auto, HyperparametersRequest, OptionsRequest, Strict

Beta = Annotated[float, Field(ge=0, le=MAX_BETA)]


class ReinforcementHyperparametersRequest(HyperparametersRequest):
    """OpenAI's hyperparameters for reinforcement, which add four members."""

    reasoning_effort: Literal["default", "low", "medium", "high"] = "default"
    """Must be `default`: base models here have no such levels."""
    compute_multiplier: Auto | Annotated[float, Field(gt=1e-5, le=10)] = "auto"
    """Factor of the number of answers to a prompt; `auto` is 1."""
    eval_interval: Auto | Annotated[int, Field(ge=1)] = "auto"
    """Steps between two evaluations."""
    eval_samples: Auto | Annotated[int, Field(ge=1)] = "auto"
    """Must be `auto`: every row of the validation file is answered once."""


class ReinforcementRequest(OptionsRequest):
    """Options of learning from graded answers."""

    grader: dict[str, JsonValue]
    """Grader in OpenAI's form; docs/graders.md has all types."""
    hyperparameters: ReinforcementHyperparametersRequest | None = None
    """Batch size, learning rate, epochs and OpenAI's own."""
    response_format: JsonValue = None
    """Must be left out: answers are graded as the model writes them."""
    algorithm: Literal["grpo", "rloo", "ppo"] = "grpo"
    """Policy gradient algorithm."""
    answers: int | None = Field(default=None, ge=1, le=MAX_ANSWERS)
    """Answers to each prompt; default 8."""
    max_answer_tokens: int | None = Field(default=None, ge=1, le=1_048_576)
    """Longest answer; default: min(512, half of max_seq_len)."""
    temperature: float = Field(default=1.0, gt=0, le=2)
    """Sampling temperature."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus sampling probability."""
    beta: Beta | None = None
    """KL penalty weight; default 0 (grpo), 0.05 (rloo), 0.01 (ppo)."""
    beta_end: Beta | None = None
    """KL penalty weight at the last step; default: it stays."""
    kl_target: float | None = Field(default=None, gt=0, le=1000)
    """Nats per answer that beta is steered towards."""
    clip: float = Field(default=0.2, gt=0, lt=1)
    """Clipping range of the policy ratio."""
    steps_per_rollout: int = Field(default=1, ge=1, le=16)
    """Optimizer steps on the answers of one policy."""
    gae_lambda: float | None = Field(default=None, ge=0, le=1)
    """Lambda of generalized advantage estimation; ppo only."""
    replay_share: float = Field(default=0.0, ge=0, le=0.5)
    """Share of a batch that comes from earlier policies."""
    replay_max_age: int | None = Field(default=None, ge=1, le=100_000)
    """Optimizer steps after which an answer is not used again."""

    @property
    def own_hyperparameters(self) -> ReinforcementHyperparametersRequest:
        """The hyperparameters, or the defaults."""
        return self.hyperparameters or ReinforcementHyperparametersRequest()

    @property
    def eval_steps(self) -> int | None:
        """Training steps between two evaluations; None unless given here."""
        interval = self.own_hyperparameters.eval_interval
        return None if interval == "auto" else interval


class ValidateGraderRequest(Strict):
    """A grader to check."""

    grader: dict[str, JsonValue]
    """Grader in OpenAI's form."""


class RunGraderRequest(Strict):
    """A grader to try on one answer."""

    grader: dict[str, JsonValue]
    """Grader in OpenAI's form, of type string_check, text_similarity, exact_answer or multi."""
    model_sample: str
    """Answer to grade: `{{ sample.output_text }}`, and where it is JSON `sample.output_json`."""
    item: dict[str, JsonValue] | None = None
    """Row of the training file that it answers: `{{ item.x }}`."""
