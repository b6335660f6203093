"""The member `method` of a submitted job: how to train, of what the command line was told."""

from enum import StrEnum
from typing import Any

from rekindle.cli.trouble import ExitCode, Trouble

Json = dict[str, Any]


class Method(StrEnum):
    """What is learnt from: chats, or pairs of answers."""

    SUPERVISED = "supervised"
    DPO = "dpo"


class DpoLoss(StrEnum):
    """Of the margin between the two answers."""

    SIGMOID = "sigmoid"
    IPO = "ipo"


def method(
    chosen: Method,
    hyperparameters: Json,
    beta: float | None,
    loss: DpoLoss | None,
    label_smoothing: float | None,
) -> Json | None:
    """None where nothing was told and the service's default is meant."""
    told = {"--beta": beta, "--dpo-loss": loss, "--label-smoothing": label_smoothing}
    named = [option for option, value in told.items() if value is not None]
    if chosen is Method.SUPERVISED:
        _refuse(named)
        options = _set(hyperparameters=hyperparameters or None)
        return {"type": chosen, chosen: options} if options else None
    hyperparameters = hyperparameters | _set(beta=beta)
    options = _set(loss=loss, label_smoothing=label_smoothing)
    return {"type": chosen, chosen: {"hyperparameters": hyperparameters} | options}


def _refuse(named: list[str]) -> None:
    if named:
        raise Trouble(
            f"{named[0]} says how to learn from preferences, and method supervised does not.",
            f"Add --method dpo, or leave {' and '.join(named)} out.",
            exit_code=ExitCode.USAGE,
            code="wrong_method",
        )


def _set(**members: object) -> Json:
    return {name: value for name, value in members.items() if value is not None}
