"""Rewards from rankings: which files they come from, and what their options may be."""

from collections.abc import Iterator

from contract.choices import HIGHEST_MARGIN, Method
from service.domain.method import METHODS
from service.domain.row import Format
from trainer.contract import Ranked

_AT = "method.reward."

Rule = tuple[str, object, bool, str]  # parameter, its value, whether it is fine, what would be


def formats(method: Method, ranked: Ranked | None) -> tuple[Format, ...]:
    """What rows the method learns from; a preference is a ranking of two."""
    if ranked is not None:
        return (Format.RANKING, Format.PREFERENCE)
    return (METHODS[method].learns_from,)


def rules(ranked: Ranked | None) -> Iterator[Rule]:
    """Every option held against its range."""
    if ranked is None:
        return
    for name in ("margin_start", "margin_end"):
        value: float = getattr(ranked, name)
        yield f"{_AT}{name}", value, 0 <= value <= HIGHEST_MARGIN, f"0 to {HIGHEST_MARGIN:g}"
    most = max(ranked.margin_start, ranked.margin_end)
    yield f"{_AT}margin_end", ranked.margin_end, most > 0, "above 0, or no answer is ever wrong"
