"""Translate a request for a job, defined in ``contract``, into the planner's terms."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from contract.choices import MAX_ANSWERS, OnExhausted
from contract.job import JobPatch, JobRequest
from contract.methods import METHODS, DpoRequest, Method, MethodRequest, RewardRequest
from contract.reinforcement import ReinforcementRequest
from contract.strict import HyperparametersRequest
from contract.terms import TermsRequest
from contract.training import LoraRequest, TrainingRequest
from service.domain.errors import InvalidRequest, MissingParameter
from service.domain.lifecycle.constraints import UNCONSTRAINED, JobConstraints
from service.domain.training.recipe import (
    DEFAULT_BETA,
    Hyperparameters,
    LearningRateScaling,
    Training,
)
from service.domain.training.reinforcement import ANSWERS, BETAS, PLANNER_CHOOSES
from service.operations.jobs.jobs import UNCHANGED, Unchanged
from service.preflight.graders import refused_grader
from trainer.contract import (
    Curriculum,
    Dpo,
    Lora,
    Mix,
    Ranked,
    Reinforcement,
    SpikeGuard,
    parse_grader,
    sources,
)

_AT = "method.reinforcement"
_OPENAIS_THREE = set(Hyperparameters.__dataclass_fields__)
_AS_ASKED = Training.__dataclass_fields__.keys() & TrainingRequest.model_fields
_MESSAGES: dict[str, type[Any]] = {
    "mix": Mix,
    "curriculum": Curriculum,
    "learning_rate_scaling": LearningRateScaling,
}
_USUAL = Reinforcement(algorithm="", grader="", answers=0, max_answer_tokens=0)


def method_of(asked: JobRequest) -> Method:
    """Return the training method; supervised by default."""
    return asked.method.type if asked.method else "supervised"


def hyperparameters_of(asked: JobRequest) -> Hyperparameters:
    """Return the hyperparameters from ``method`` or the deprecated place, not from both."""
    new = asked.method.hyperparameters if asked.method else None
    if new is not None and asked.hyperparameters is not None:
        raise InvalidRequest(
            f"Give hyperparameters once: in method.{method_of(asked)}.hyperparameters.",
            param="hyperparameters",
        )
    chosen = new or asked.hyperparameters or HyperparametersRequest()
    return Hyperparameters(**chosen.model_dump(include=_OPENAIS_THREE))


def training_of(asked: JobRequest) -> Training:
    """Return the method and Rekindle's training options."""
    training, method = asked.training, asked.method
    if method:
        _refuse_other_methods(method)
    members = {name: getattr(training, name) for name in _AS_ASKED}
    for name, kind in _MESSAGES.items():
        if members[name]:
            members[name] = kind(**members[name].model_dump())
    return Training(
        method=method_of(asked),
        lora=_lora(training.adapter) if training.adapter else None,
        spike_guard=SpikeGuard(on_spike=training.on_spike) if training.on_spike else None,
        **(members | {"eval_steps": _eval_steps(asked)} | _options(method)),
    )


def with_default_precision(asked: JobRequest, accelerator: str) -> JobRequest:
    """Set ``training.precision`` to fp32 on a deployment of CPUs, unless the user named one.

    A CPU without AVX-512 multiplies bf16 matrices about 30 times slower than fp32.
    """
    if accelerator != "cpu" or "precision" in asked.training.model_fields_set:
        return asked
    training = asked.training.model_copy(update={"precision": "fp32"})
    return asked.model_copy(update={"training": training})


def terms_of(asked: JobRequest) -> JobConstraints:
    """Return the limits of money, time and place."""
    return apply_terms(UNCONSTRAINED, asked.infrastructure)


def apply_terms(before: JobConstraints, asked: TermsRequest) -> JobConstraints:
    """Return ``before`` with the members that were sent."""
    members: dict[str, Any] = dict(vars(before))
    sent = asked.model_fields_set
    if "budget" in sent:
        members["budget"] = asked.budget.amount if asked.budget else None
        members["on_exhausted"] = asked.budget.on_exhausted if asked.budget else OnExhausted.PAUSE
    if "deadline" in sent:
        members["deadline"] = asked.deadline and datetime.fromtimestamp(asked.deadline, UTC)
    if "on_deadline_risk" in sent:
        members["on_deadline_risk"] = asked.on_deadline_risk
    if "max_price" in sent:
        members["max_price"] = asked.max_price.amount if asked.max_price else None
    if "regions" in sent:
        members["regions"] = tuple(asked.regions or ())
    if "engine" in sent:
        members["engine"] = asked.engine
    if "priority" in sent:
        members["priority"] = asked.priority
    return JobConstraints(**members)


def new_metadata(asked: JobPatch) -> dict[str, str] | Unchanged | None:
    """Return the new metadata, or UNCHANGED where none was sent."""
    return asked.metadata if "metadata" in asked.model_fields_set else UNCHANGED


def check_grader(grader: dict[str, Any], where: str) -> dict[str, str]:
    """Return the sources of the grader's Python graders, for ``GraderProcess`` to check.

    Raises InvalidRequest that names the member at fault.
    """
    try:
        return sources(parse_grader(grader, where), where)
    except ValueError as fault:
        raise refused_grader(str(fault)) from None


def sources_of(asked: JobRequest) -> dict[str, str]:
    """Return the sources of the Python graders in a request for a job."""
    reinforcement = asked.method.reinforcement if asked.method else None
    return check_grader(reinforcement.grader, f"{_AT}.grader") if reinforcement else {}


def _lora(asked: LoraRequest) -> Lora:
    return Lora(
        rank=asked.r,
        alpha=asked.alpha or 2 * asked.r,
        dropout=asked.dropout,
        quantized=asked.type == "qlora",
    )


def _eval_steps(asked: JobRequest) -> int | None:
    """Return the steps between evaluations, from OpenAI's member or from ours."""
    reinforcement = asked.method.reinforcement if asked.method else None
    within, own = reinforcement.eval_steps if reinforcement else None, asked.training.eval_steps
    if within is not None and own is not None:
        raise InvalidRequest(
            "Give the steps between evaluations once: in training.eval_steps, or in "
            "method.reinforcement.hyperparameters.eval_interval.",
            param="training.eval_steps",
        )
    return own if within is None else within


def _refuse_other_methods(method: MethodRequest) -> None:
    """Raise InvalidRequest for options of another type."""
    for other in METHODS:
        if other != method.type and getattr(method, other) is not None:
            raise InvalidRequest(
                f"method.{other} has options of another method than method.type, which is "
                f"{method.type!r}. Leave it out, or change the type.",
                param=f"method.{other}",
            )


def _options(method: MethodRequest | None) -> dict[str, Any]:
    """Return the members of the run spec that hold the method's options."""
    if method is None:
        return {}
    asked = getattr(method, method.type)
    if method.type in _OWN_MEMBER:
        return _OWN_MEMBER[method.type](asked)
    own = (asked or METHODS[method.type].options()).own
    return {"method_options": json.dumps(own)} if own else {}


def _dpo(asked: DpoRequest | None) -> dict[str, Any]:
    asked = asked or DpoRequest()
    within = asked.hyperparameters.beta if asked.hyperparameters else None
    if within is not None and asked.beta is not None:
        raise InvalidRequest(
            "Give beta once: in method.dpo.hyperparameters.", param="method.dpo.beta"
        )
    beta = within or asked.beta or "auto"
    dpo = Dpo(
        beta=DEFAULT_BETA if beta == "auto" else beta,
        loss=asked.loss,
        label_smoothing=asked.label_smoothing,
    )
    return {"dpo": dpo}


def _ranked(asked: RewardRequest | None) -> dict[str, Any]:
    """Return the options of ranked rewards; none for pairs."""
    asked = asked or RewardRequest()
    margins = {"margin_start": asked.margin_start, "margin_end": asked.margin_end}
    sent = {name: value for name, value in margins.items() if value is not None}
    if asked.loss == "ranked_margin":
        return {"ranked": Ranked(**sent)}
    for name in sent:
        raise InvalidRequest(
            f"method.reward.{name} is of loss ranked_margin, and the loss is {asked.loss}. "
            "Leave it out, or change the loss.",
            param=f"method.reward.{name}",
        )
    return {}


def _reinforcement(asked: ReinforcementRequest | None) -> dict[str, Any]:
    """Return the options of reinforcement; the planner may choose the length of answers."""
    if asked is None:
        raise MissingParameter(
            "method.reinforcement.grader: missing. It grades the answers to learn from.",
            param="method.reinforcement.grader",
        )
    _refuse_unused(asked)
    check_grader(asked.grader, f"{_AT}.grader")
    reinforcement = Reinforcement(
        algorithm=asked.algorithm,
        grader=json.dumps(asked.grader),
        answers=_answers(asked),
        max_answer_tokens=asked.max_answer_tokens or PLANNER_CHOOSES,
        temperature=asked.temperature,
        top_p=asked.top_p,
        beta=BETAS[asked.algorithm] if asked.beta is None else asked.beta,
        beta_end=asked.beta_end,
        kl_target=asked.kl_target,
        clip=asked.clip,
        steps_per_rollout=asked.steps_per_rollout,
        gae_lambda=_USUAL.gae_lambda if asked.gae_lambda is None else asked.gae_lambda,
        replay_share=asked.replay_share,
        replay_max_age=asked.replay_max_age or _USUAL.replay_max_age,
    )
    return {"reinforcement": reinforcement}


def _answers(asked: ReinforcementRequest) -> int:
    """Return the answers per prompt, times OpenAI's compute multiplier."""
    answers, factor = asked.answers or ANSWERS, asked.own_hyperparameters.compute_multiplier
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


def _refuse_unused(asked: ReinforcementRequest) -> None:
    """Raise InvalidRequest for members that would have no effect."""
    chosen = asked.own_hyperparameters
    refused = [
        (
            "hyperparameters.reasoning_effort",
            chosen.reasoning_effort != "default",
            f"is {chosen.reasoning_effort!r}, but the base models here have no such levels. Leave "
            "it out",
        ),
        (
            "hyperparameters.eval_samples",
            chosen.eval_samples != "auto",
            f"is {chosen.eval_samples}, but every row of the validation file is answered once. "
            "Leave it out, and give a validation file of as many rows",
        ),
        (
            "response_format",
            asked.response_format is not None,
            "is not supported: answers are graded as the model writes them. Leave it out, and let "
            "the prompt ask for the form",
        ),
        (
            "gae_lambda",
            asked.gae_lambda is not None and asked.algorithm != "ppo",
            f"is for ppo, and {asked.algorithm} has no critic. Leave it out",
        ),
        (
            "replay_max_age",
            asked.replay_max_age is not None and not asked.replay_share,
            "is for answers that are used again. Leave it out, or give replay_share",
        ),
    ]
    for name, wrong, why in refused:
        if wrong:
            raise InvalidRequest(f"{_AT}.{name} {why}.", param=f"{_AT}.{name}")


# Methods whose options are a member of their own of the run spec; others' are in `method_options`.
_OWN_MEMBER: dict[str, Callable[[Any], dict[str, Any]]] = {
    "dpo": _dpo,
    "reward": _ranked,
    "reinforcement": _reinforcement,
}
