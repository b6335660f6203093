"""Options of `rekindle submit` for what to begin with: a preset; and whether to send it at all."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from rekindle.cli import presets
from rekindle.cli.choose import JOBS
from rekindle.cli.command import Cli
from rekindle.cli.submit_method import Method
from rekindle.cli.submit_training import Memory
from rekindle.cli.trouble import ExitCode, Trouble

Json = dict[str, Any]


def _complete(incomplete: str) -> list[tuple[str, str]]:
    every = presets.known().values()
    return [(p.name, p.about) for p in every if p.name.startswith(incomplete)]


@dataclass(frozen=True, kw_only=True)
class Start:
    """What the job is when nothing else is told."""

    preset: Annotated[
        str | None,
        typer.Option(
            "--preset",
            metavar="NAME",
            help="A recipe of `rekindle presets`; what else is told here wins.",
            autocompletion=_complete,
        ),
    ] = None
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Show the request and its plan, and make no job. The file is uploaded.",
            rich_help_panel="How to send it",
        ),
    ] = False

    def method(self, told: Method | None) -> Method:
        """The one that was told, else the preset's; raises Trouble where they differ."""
        if self.preset is None:
            return told or Method.SUPERVISED
        of = Method(presets.named(self.preset).method)
        if told not in (None, of):
            raise _wrong(
                f"--method is {told}, and preset {self.preset} is a recipe for {of}.",
                "Leave one of them out.",
            )
        return of

    def over(self, told: Json, memory: Memory) -> Json:
        """The request: what was told, over the preset."""
        if self.preset is None:
            return _with_model(told)
        found = presets.named(self.preset)
        training = told["training"]
        adapter = training.get("adapter")
        if adapter and not found.adapter and "learning_rate" not in training:
            raise _wrong(
                f"Preset {self.preset} trains all weights; adapters need another learning rate.",
                "Choose a preset with adapters, or add --learning-rate.",
            )
        if adapter and found.adapter and not (memory.lora or memory.qlora):
            del adapter["type"]  # a rank alone leaves the preset's
        return presets.over(told, found.body())


def shown(cli: Cli, body: Json) -> None:
    """The request and the service's plan of it; no job is made."""
    import json

    from rekindle.cli.submit import planned  # which imports this module

    plan = cli.client.post(f"{JOBS}?dry_run=true", body)["plan"]
    document = {"object": "plan", "request": body, "plan": plan}
    cli.show(document, lambda: [json.dumps(body, indent=2), *planned(plan)])


def _with_model(told: Json) -> Json:
    if told["model"] is None:
        raise _wrong(
            "Which model is to be trained?",
            "Give --model, or a --preset that names one.",
        )
    return told


def _wrong(message: str, advice: str) -> Trouble:
    return Trouble(message, advice, exit_code=ExitCode.USAGE, code="wrong_preset")
