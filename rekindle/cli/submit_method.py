"""The member `method` of a submitted job: how to train, of what the command line was told."""

from enum import StrEnum
from typing import Any

from rekindle.cli.trouble import ExitCode, Trouble

Json = dict[str, Any]


class Method(StrEnum):
    """To answer as chats do or as preferred, to tell which answer is preferred or what a text is,
    or to answer so that the grades are good.
    """

    SUPERVISED = "supervised"
    DPO = "dpo"
    REWARD = "reward"
    CLASSIFICATION = "classification"
    REINFORCEMENT = "reinforcement"


_UNPACKED = {
    Method.REWARD: "reward models: a reward is read at the end of each row",
    Method.CLASSIFICATION: "classification: a label is read at the end of each row",
    Method.REINFORCEMENT: "reinforcement: its answers have no length yet",
}


class DpoLoss(StrEnum):
    """Of the margin between the two answers."""

    SIGMOID = "sigmoid"
    IPO = "ipo"


def method(
    chosen: Method,
    hyperparameters: Json,
    beta: float | None,
    dpo_loss: DpoLoss | None,
    label_smoothing: float | None,
) -> Json | None:
    """None where nothing was told and the service's default is meant."""
    told = {"--beta": beta, "--dpo-loss": dpo_loss, "--label-smoothing": label_smoothing}
    named = [option for option, value in told.items() if value is not None]
    if chosen is Method.REINFORCEMENT:
        _refuse(chosen, [option for option in named if option != "--beta"])
        options = _set(hyperparameters=hyperparameters or None, beta=beta)
        return {"type": chosen, chosen: options}
    if chosen is not Method.DPO:
        _refuse(chosen, named)
        options = _set(hyperparameters=hyperparameters or None)
        is_usual = chosen is Method.SUPERVISED and not options
        return None if is_usual else {"type": chosen, chosen: options}
    if beta == 0:
        raise Trouble(
            "--beta is 0, but with DPO it must be above 0 and at most 2.",
            "Leave it out for 0.1.",
            exit_code=ExitCode.USAGE,
            code="bad_beta",
        )
    hyperparameters = hyperparameters | _set(beta=beta)
    options = _set(loss=dpo_loss, label_smoothing=label_smoothing)
    return {"type": chosen, chosen: {"hyperparameters": hyperparameters} | options}


def packing(chosen: Method, *, wanted: bool) -> bool | None:
    """None where it was not asked for; said before a file is uploaded for nothing."""
    if wanted and chosen in _UNPACKED:
        raise Trouble(
            f"--packing is not for {_UNPACKED[chosen]}.",
            "Leave --packing out.",
            exit_code=ExitCode.USAGE,
            code="wrong_method",
        )
    return wanted or None


def _refuse(chosen: Method, named: list[str]) -> None:
    if named:
        raise Trouble(
            f"{named[0]} is an option of DPO, and method {chosen} does not know it.",
            f"Add --method dpo, or leave {' and '.join(named)} out.",
            exit_code=ExitCode.USAGE,
            code="wrong_method",
        )


def _set(**members: object) -> Json:
    return {name: value for name, value in members.items() if value is not None}
