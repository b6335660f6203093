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

_REINFORCEMENT_PATH = "method.reinforcement"
_OPENAIS_THREE = set(Hyperparameters.__dataclass_fields__)
_COPIED_MEMBERS = Training.__dataclass_fields__.keys() & TrainingRequest.model_fields
_MESSAGES: dict[str, type[Any]] = {
    "mix": Mix,
    "curriculum": Curriculum,
    "learning_rate_scaling": LearningRateScaling,
}
_DEFAULT_REINFORCEMENT = Reinforcement(algorithm="", grader="", answers=0, max_answer_tokens=0)


def method_of(request: JobRequest) -> Method:
    """Return the training method; supervised by default."""
    return request.method.type if request.method else "supervised"


def hyperparameters_of(request: JobRequest) -> Hyperparameters:
    """Return the hyperparameters from ``method`` or the deprecated member, not from both."""
    new = request.method.hyperparameters if request.method else None
    if new is not None and request.hyperparameters is not None:
        raise InvalidRequest(
            f"Give hyperparameters once: in method.{method_of(request)}.hyperparameters.",
            param="hyperparameters",
        )
    chosen = new or request.hyperparameters or HyperparametersRequest()
    return Hyperparameters(**chosen.model_dump(include=_OPENAIS_THREE))


def training_of(request: JobRequest) -> Training:
    """Return the method and Rekindle's training options."""
    training, method = request.training, request.method
    if method:
        _refuse_other_methods(method)
    members = {name: getattr(training, name) for name in _COPIED_MEMBERS}
    for name, kind in _MESSAGES.items():
        if members[name]:
            members[name] = kind(**members[name].model_dump())
    return Training(
        method=method_of(request),
        lora=_lora(training.adapter) if training.adapter else None,
        spike_guard=SpikeGuard(on_spike=training.on_spike) if training.on_spike else None,
        **(members | {"eval_steps": _eval_steps(request)} | _options(method)),
    )


def with_default_precision(request: JobRequest, accelerator: str) -> JobRequest:
    """Set ``training.precision`` to fp32 on a deployment of CPUs, unless the user named one.

    A CPU without AVX-512 multiplies bf16 matrices about 30 times slower than fp32.
    """
    if accelerator != "cpu" or "precision" in request.training.model_fields_set:
        return request
    training = request.training.model_copy(update={"precision": "fp32"})
    return request.model_copy(update={"training": training})


def terms_of(request: JobRequest) -> JobConstraints:
    """Return the limits of cost, time and region."""
    return apply_terms(UNCONSTRAINED, request.infrastructure)


def apply_terms(before: JobConstraints, request: TermsRequest) -> JobConstraints:
    """Return ``before`` with the members that were sent."""
    members: dict[str, Any] = dict(vars(before))
    fields_set = request.model_fields_set
    if "budget" in fields_set:
        members["budget"] = request.budget.amount if request.budget else None
        members["on_exhausted"] = (
            request.budget.on_exhausted if request.budget else OnExhausted.PAUSE
        )
    if "deadline" in fields_set:
        members["deadline"] = request.deadline and datetime.fromtimestamp(request.deadline, UTC)
    if "on_deadline_risk" in fields_set:
        members["on_deadline_risk"] = request.on_deadline_risk
    if "max_price" in fields_set:
        members["max_price"] = request.max_price.amount if request.max_price else None
    if "regions" in fields_set:
        members["regions"] = tuple(request.regions or ())
    if "engine" in fields_set:
        members["engine"] = request.engine
    if "priority" in fields_set:
        members["priority"] = request.priority
    return JobConstraints(**members)


def new_metadata(patch: JobPatch) -> dict[str, str] | Unchanged | None:
    """Return the new metadata, or UNCHANGED where none was sent."""
    return patch.metadata if "metadata" in patch.model_fields_set else UNCHANGED


def check_grader(grader: dict[str, Any], param: str) -> dict[str, str]:
    """Return the sources of the grader's Python graders, for ``GraderProcess`` to check.

    Raises InvalidRequest that names the member at fault.
    """
    try:
        return sources(parse_grader(grader, param), param)
    except ValueError as fault:
        raise refused_grader(str(fault)) from None


def sources_of(request: JobRequest) -> dict[str, str]:
    """Return the sources of the Python graders in a request for a job."""
    reinforcement = request.method.reinforcement if request.method else None
    return (
        check_grader(reinforcement.grader, f"{_REINFORCEMENT_PATH}.grader") if reinforcement else {}
    )


def _lora(request: LoraRequest) -> Lora:
    return Lora(
        rank=request.r,
        alpha=request.alpha or 2 * request.r,
        dropout=request.dropout,
        quantized=request.type == "qlora",
    )


def _eval_steps(request: JobRequest) -> int | None:
    """Return the steps between evaluations, from OpenAI's member or from ours."""
    reinforcement = request.method.reinforcement if request.method else None
    method_steps = reinforcement.eval_steps if reinforcement else None
    training_steps = request.training.eval_steps
    if method_steps is not None and training_steps is not None:
        raise InvalidRequest(
            "Give the steps between evaluations once: in training.eval_steps, or in "
            "method.reinforcement.hyperparameters.eval_interval.",
            param="training.eval_steps",
        )
    return training_steps if method_steps is None else method_steps


def _refuse_other_methods(method: MethodRequest) -> None:
    """Raise InvalidRequest for options of another type."""
    for other_method in METHODS:
        if other_method != method.type and getattr(method, other_method) is not None:
            raise InvalidRequest(
                f"method.{other_method} has options of another method than method.type, which is "
                f"{method.type!r}. Leave it out, or change the type.",
                param=f"method.{other_method}",
            )


def _options(method: MethodRequest | None) -> dict[str, Any]:
    """Return the members of the run spec that hold the method's options."""
    if method is None:
        return {}
    options = getattr(method, method.type)
    if method.type in _OWN_MEMBER:
        return _OWN_MEMBER[method.type](options)
    own_options = (options or METHODS[method.type].options()).own
    return {"method_options": json.dumps(own_options)} if own_options else {}


def _dpo(options: DpoRequest | None) -> dict[str, Any]:
    options = options or DpoRequest()
    nested_beta = options.hyperparameters.beta if options.hyperparameters else None
    if nested_beta is not None and options.beta is not None:
        raise InvalidRequest(
            "Give beta once: in method.dpo.hyperparameters.", param="method.dpo.beta"
        )
    beta = nested_beta or options.beta or "auto"
    dpo = Dpo(
        beta=DEFAULT_BETA if beta == "auto" else beta,
        loss=options.loss,
        label_smoothing=options.label_smoothing,
    )
    return {"dpo": dpo}


def _ranked(options: RewardRequest | None) -> dict[str, Any]:
    """Return the options of ranked rewards; none for pairs."""
    options = options or RewardRequest()
    margins = {"margin_start": options.margin_start, "margin_end": options.margin_end}
    set_margins = {name: value for name, value in margins.items() if value is not None}
    if options.loss == "ranked_margin":
        return {"ranked": Ranked(**set_margins)}
    for name in set_margins:
        raise InvalidRequest(
            f"method.reward.{name} is of loss ranked_margin, and the loss is {options.loss}. "
            "Leave it out, or change the loss.",
            param=f"method.reward.{name}",
        )
    return {}


def _reinforcement(options: ReinforcementRequest | None) -> dict[str, Any]:
    """Return the options of reinforcement; the planner may choose the length of answers."""
    if options is None:
        raise MissingParameter(
            "method.reinforcement.grader: missing. It grades the answers to learn from.",
            param="method.reinforcement.grader",
        )
    _refuse_unused(options)
    check_grader(options.grader, f"{_REINFORCEMENT_PATH}.grader")
    reinforcement = Reinforcement(
        algorithm=options.algorithm,
        grader=json.dumps(options.grader),
        answers=_answers(options),
        max_answer_tokens=options.max_answer_tokens or PLANNER_CHOOSES,
        temperature=options.temperature,
        top_p=options.top_p,
        beta=BETAS[options.algorithm] if options.beta is None else options.beta,
        beta_end=options.beta_end,
        kl_target=options.kl_target,
        clip=options.clip,
        steps_per_rollout=options.steps_per_rollout,
        gae_lambda=_DEFAULT_REINFORCEMENT.gae_lambda
        if options.gae_lambda is None
        else options.gae_lambda,
        replay_share=options.replay_share,
        replay_max_age=options.replay_max_age or _DEFAULT_REINFORCEMENT.replay_max_age,
    )
    return {"reinforcement": reinforcement}


def _answers(options: ReinforcementRequest) -> int:
    """Return the answers per prompt, times OpenAI's compute multiplier."""
    answers, factor = options.answers or ANSWERS, options.own_hyperparameters.compute_multiplier
    if factor == "auto":
        return answers
    product = round(answers * factor)
    if not 1 <= product <= MAX_ANSWERS:
        at = f"{_REINFORCEMENT_PATH}.hyperparameters.compute_multiplier"
        raise InvalidRequest(
            f"{at} is {factor:g}, which makes {product} of {answers} answers to a prompt; "
            f"1 to {MAX_ANSWERS} are possible.",
            param=at,
        )
    return product


def _refuse_unused(options: ReinforcementRequest) -> None:
    """Raise InvalidRequest for members that would have no effect."""
    chosen = options.own_hyperparameters
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
            options.response_format is not None,
            "is not supported: answers are graded as the model writes them. Leave it out, and let "
            "the prompt ask for the form",
        ),
        (
            "gae_lambda",
            options.gae_lambda is not None and options.algorithm != "ppo",
            f"is for ppo, and {options.algorithm} has no critic. Leave it out",
        ),
        (
            "replay_max_age",
            options.replay_max_age is not None and not options.replay_share,
            "is for answers that are used again. Leave it out, or give replay_share",
        ),
    ]
    for name, wrong, reason in refused:
        if wrong:
            raise InvalidRequest(
                f"{_REINFORCEMENT_PATH}.{name} {reason}.", param=f"{_REINFORCEMENT_PATH}.{name}"
            )


# Methods whose options are a member of their own of the run spec; others' are in `method_options`.
_OWN_MEMBER: dict[str, Callable[[Any], dict[str, Any]]] = {
    "dpo": _dpo,
    "reward": _ranked,
    "reinforcement": _reinforcement,
}
