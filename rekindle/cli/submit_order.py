"""Options of `rekindle submit` for the order in which rows come."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

Json = dict[str, Any]
_PANEL = "In which order"


@dataclass(frozen=True, kw_only=True)
class Order:
    """A plain shuffle if nothing is told."""

    mix_threshold: Annotated[
        int | None,
        typer.Option(
            "--mix-threshold",
            min=1,
            metavar="TOKENS",
            help="Mix short rows, of up to so many tokens, and long ones, 7 to 3 all along.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    mix_short_share: Annotated[
        float | None,
        typer.Option(
            "--mix-short-share",
            min=0,
            max=1,
            metavar="SHARE",
            help="Mix short and long rows so, 0.7 of them short if not told.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    curriculum_steps: Annotated[
        int | None,
        typer.Option(
            "--curriculum-steps",
            min=1,
            metavar="STEPS",
            help="Easy rows first: a fifth of them, growing to all in so many steps.",
            rich_help_panel=_PANEL,
        ),
    ] = None

    def members(self) -> Json:
        """What the request's member `training` says of it."""
        mix = {"threshold_tokens": self.mix_threshold, "short_share": self.mix_short_share}
        told = {name: value for name, value in mix.items() if value is not None}
        order: Json = {"mix": told} if told else {}
        if self.curriculum_steps is not None:
            order["curriculum"] = {"until_step": self.curriculum_steps}
        return order
