"""The member ``method.reinforcement`` of a job's request, OpenAI's members and ours beside them.

And the bodies of its graders' own addresses. Strict.
"""

import json
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue

from service.api.hyperparameters import Auto, HyperparametersRequest, Strict
from service.domain.errors import InvalidRequest
from service.domain.reinforcement import (
    ANSWERS,
    BETAS,
    LEFT_TO_US,
    MAX_ANSWERS,
    MAX_BETA,
)
from trainer.contract import Reinforcement, parse_grader

_AT = "method.reinforcement"
_USUAL = Reinforcement(algorithm="", grader="", answers=0, max_answer_tokens=0)

Beta = Annotated[float, Field(ge=0, le=MAX_BETA)]


class ReinforcementHyperparametersRequest(HyperparametersRequest):
    """And those that OpenAI has for reinforcement only."""

    reasoning_effort: Literal["default", "low", "medium", "high"] = "default"
    compute_multiplier: Auto | Annotated[float, Field(gt=1e-5, le=10)] = "auto"
    eval_interval: Auto | Annotated[int, Field(ge=1)] = "auto"
    eval_samples: Auto | Annotated[int, Field(ge=1)] = "auto"

    def refuse_what_is_not_done(self) -> None:
        """Raise InvalidRequest for members that would silently change nothing."""
        at = f"{_AT}.hyperparameters"
        if self.reasoning_effort != "default":
            raise InvalidRequest(
                f"{at}.reasoning_effort is {self.reasoning_effort!r}, but the base models here "
                "have no such levels. Leave it out.",
                param=f"{at}.reasoning_effort",
            )
        if self.eval_samples != "auto":
            raise InvalidRequest(
                f"{at}.eval_samples is {self.eval_samples}, but every row of the validation file "
                "is answered once. Leave it out, and give a validation file of as many rows.",
                param=f"{at}.eval_samples",
            )


class ReinforcementRequest(Strict):
    """Options of learning from grades; from ``algorithm`` on they are ours."""

    grader: dict[str, JsonValue]
    hyperparameters: ReinforcementHyperparametersRequest | None = None
    response_format: JsonValue = None
    algorithm: Literal["grpo", "rloo", "ppo"] = "grpo"
    answers: int | None = Field(default=None, ge=1, le=MAX_ANSWERS)
    max_answer_tokens: int | None = Field(default=None, ge=1, le=1_048_576)
    temperature: float = Field(default=_USUAL.temperature, gt=0, le=2)
    top_p: float = Field(default=_USUAL.top_p, gt=0, le=1)
    beta: Beta | None = None
    beta_end: Beta | None = None
    kl_target: float | None = Field(default=None, gt=0, le=1000)
    clip: float = Field(default=_USUAL.clip, gt=0, lt=1)
    steps_per_rollout: int = Field(default=_USUAL.steps_per_rollout, ge=1, le=16)
    gae_lambda: float | None = Field(default=None, ge=0, le=1)
    replay_share: float = Field(default=_USUAL.replay_share, ge=0, le=0.5)
    replay_max_age: int | None = Field(default=None, ge=1, le=100_000)

    @property
    def chosen(self) -> ReinforcementHyperparametersRequest:
        """Its hyperparameters, all usual where none are told."""
        return self.hyperparameters or ReinforcementHyperparametersRequest()

    @property
    def eval_steps(self) -> int | None:
        """Training steps between two evaluations, where they are told here."""
        asked = self.chosen.eval_interval
        return None if asked == "auto" else asked

    def resolved(self) -> Reinforcement:
        """With every number but the answers' length, which depends on the model."""
        self.chosen.refuse_what_is_not_done()
        self._refuse_what_has_no_use()
        check_grader(self.grader, f"{_AT}.grader")
        return Reinforcement(
            algorithm=self.algorithm,
            grader=json.dumps(self.grader),
            answers=self._answers(),
            max_answer_tokens=self.max_answer_tokens or LEFT_TO_US,
            temperature=self.temperature,
            top_p=self.top_p,
            beta=BETAS[self.algorithm] if self.beta is None else self.beta,
            beta_end=self.beta_end,
            kl_target=self.kl_target,
            clip=self.clip,
            steps_per_rollout=self.steps_per_rollout,
            gae_lambda=_USUAL.gae_lambda if self.gae_lambda is None else self.gae_lambda,
            replay_share=self.replay_share,
            replay_max_age=self.replay_max_age or _USUAL.replay_max_age,
        )

    def _answers(self) -> int:
        """As many as asked for, times OpenAI's multiplier."""
        answers, factor = self.answers or ANSWERS, self.chosen.compute_multiplier
        if factor == "auto":
            return answers
        product = round(answers * factor)
        if not 1 <= product <= MAX_ANSWERS:
            at = f"{_AT}.hyperparameters.compute_multiplier"
            raise InvalidRequest(
                f"{at} is {factor:g}, which makes {product} of {answers} answers to a prompt; "
                f"1 to {MAX_ANSWERS} are possible.",
                param=at,
            )
        return product

    def _refuse_what_has_no_use(self) -> None:
        refused = [
            (
                "response_format",
                self.response_format is not None,
                "is not supported: answers are graded as the model writes them. Leave it out, and "
                "let the prompt ask for the form",
            ),
            (
                "gae_lambda",
                self.gae_lambda is not None and self.algorithm != "ppo",
                f"is for ppo, and {self.algorithm} has no critic. Leave it out",
            ),
            (
                "replay_max_age",
                self.replay_max_age is not None and not self.replay_share,
                "is for answers that are used again. Leave it out, or give replay_share",
            ),
        ]
        for name, wrong, why in refused:
            if wrong:
                raise InvalidRequest(f"{_AT}.{name} {why}.", param=f"{_AT}.{name}")


class ValidateGraderRequest(Strict):
    """POST /v1/fine_tuning/alpha/graders/validate."""

    grader: dict[str, JsonValue]


def check_grader(grader: dict[str, Any], where: str) -> None:
    """Raise InvalidRequest that names the member at fault."""
    try:
        parse_grader(grader, where)
    except ValueError as fault:
        message = str(fault)
        raise InvalidRequest(message, param=message.split(": ", maxsplit=1)[0][:200]) from None
