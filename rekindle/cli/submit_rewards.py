"""Options of `rekindle submit` for reward models: what their answers are held against."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer

from rekindle.cli.submit_method import Method
from rekindle.cli.trouble import ExitCode, Trouble

Json = dict[str, Any]
_PANEL = "Of reward models"


class RewardLoss(StrEnum):
    """Of pairs, or of rankings."""

    BRADLEY_TERRY = "bradley_terry"
    RANKED_MARGIN = "ranked_margin"


@dataclass(frozen=True, kw_only=True)
class Rewards:
    """Options that only reward models have."""

    reward_loss: Annotated[
        RewardLoss | None,
        typer.Option(
            "--reward-loss",
            help="bradley_terry of preferences, or ranked_margin of rankings.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    margin_start: Annotated[
        float | None,
        typer.Option(
            "--margin-start",
            min=0,
            help="Of ranked_margin: what a better answer must lead by at first; 0.1 if not told.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    margin_end: Annotated[
        float | None,
        typer.Option(
            "--margin-end",
            min=0,
            help="Of ranked_margin: and at the last step; 0.5 if not told.",
            rich_help_panel=_PANEL,
        ),
    ] = None

    def beside(self, chosen: Method, method: Json | None) -> Json | None:
        """The request's method with what was told here; raises Trouble for another method."""
        told = {
            "loss": self.reward_loss,
            "margin_start": self.margin_start,
            "margin_end": self.margin_end,
        }
        options = {name: value for name, value in told.items() if value is not None}
        if not options:
            return method
        if chosen is not Method.REWARD:
            raise Trouble(
                f"--reward-loss and its margins are of reward models, and the method is {chosen}.",
                "Add --method reward, or leave them out.",
                exit_code=ExitCode.USAGE,
                code="wrong_method",
            )
        within = (method or {}).get(chosen, {})
        return {"type": chosen, chosen: within | options}
