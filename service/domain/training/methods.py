"""Answer what the planner and messages need of a training method, beside its descriptor."""

from contract.choices import Format
from contract.methods import METHODS, Method
from trainer.contract import Ranked, Reinforcement


def formats(method: Method, ranked: Ranked | None) -> tuple[Format, ...]:
    """Return the formats of rows that the method takes; a preference is a ranking of two."""
    if ranked is not None:
        return (Format.RANKING, Format.PREFERENCE)
    return METHODS[method].rows[:1]


def learning_from(rows: Format) -> list[str]:
    """Return the methods that train on rows of this format, as a message names them."""
    if rows is Format.RANKING:
        return ["reward with loss ranked_margin"]
    return [name for name, method in METHODS.items() if method.rows[0] is rows]


def keeps_reference(method: Method, reinforcement: Reinforcement | None) -> bool:
    """Return whether a frozen model scores every sequence as well."""
    has_penalty = reinforcement is not None and reinforcement.beta > 0
    return METHODS[method].reference or has_penalty


def models_trained(reinforcement: Reinforcement | None) -> int:
    """Return how many models are trained: PPO's critic is a second one of the same size."""
    return 2 if reinforcement is not None and reinforcement.algorithm == "ppo" else 1
