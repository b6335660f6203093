"""Rewards from rankings: which files they come from, and what their options may be."""

from contract.choices import Method
from service.domain.method import METHODS
from service.domain.row import Format
from trainer.contract import Ranked

_AT = "method.reward."


def formats(method: Method, ranked: Ranked | None) -> tuple[Format, ...]:
    """What rows the method learns from; a preference is a ranking of two."""
    if ranked is not None:
        return (Format.RANKING, Format.PREFERENCE)
    return (METHODS[method].learns_from,)
