"""Options of `rekindle submit`: those of the first day; --set and --config do the rest."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from rekindle.cli.submit import presets

Json = dict[str, Any]
_TRAINING, _MACHINES = "How to train", "What to run on"
_SENDING, _REST = "How to send it", "Everything else"


def method_name(text: str) -> str:
    """Return the name of a training method; raise BadParameter for any other text."""
    from contract.methods import METHODS

    if text not in METHODS:
        names = ", ".join(map(repr, METHODS))
        raise typer.BadParameter(f"{text!r} is not one of {names}.")
    return text


def method_help() -> str:
    """Return the methods in a sentence."""
    from contract.methods import METHODS

    return "; ".join(f"{name} ({m.label.partition(': ')[2]})" for name, m in METHODS.items())


def complete_method(incomplete: str) -> list[tuple[str, str]]:
    """Completions of --method."""
    from contract.methods import METHODS

    return [(name, m.label) for name, m in METHODS.items() if name.startswith(incomplete)]


def complete_setting(incomplete: str) -> list[tuple[str, str]]:
    """Completions of --set."""
    from rekindle.cli.submit import job_settings

    return job_settings.complete(incomplete)


def complete_value(given: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Completions of a value of --set where the shell takes it, as bash does, for a next word."""
    settings = [str(setting) for setting in given.get("settings") or ()]
    if not settings or "=" in settings[-1]:
        return []
    from rekindle.cli.submit import job_settings

    return job_settings.complete_value(settings[-1], "")


def _complete_file(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    return [(v, about) for v, about in complete_value(ctx.params) if v.startswith(incomplete)]


def _complete_preset(incomplete: str) -> list[tuple[str, str]]:
    every = presets.known().values()
    return [(p.name, p.about) for p in every if p.name.startswith(incomplete)]


File = Annotated[
    str | None,
    typer.Argument(
        metavar="FILE",
        help="Training file in JSONL, one chat a line or what the method learns from; or the id of "
        "an upload. Optional if --config or --set names a training_file.",
        autocompletion=_complete_file,
    ),
]
Validation = Annotated[
    str | None,
    typer.Option("--validation", metavar="FILE", help="Rows to measure on, never to train on."),
]
Preset = Annotated[
    str | None,
    typer.Option(
        "--preset",
        metavar="NAME",
        help="Recipe of `rekindle presets` to begin with; all other options win over it.",
        autocompletion=_complete_preset,
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="Members of the job in YAML, JSON or TOML: the body of POST /v1/fine_tuning/jobs. "
        "Options win over it.",
        rich_help_panel=_REST,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="MEMBER=VALUE",
        help="Any member of the job, such as training.ema_decay=0.99; the value is YAML. "
        "Repeatable, wins over all else.",
        rich_help_panel=_REST,
        autocompletion=complete_setting,
    ),
]
Name = Annotated[
    str | None,
    typer.Option(
        "--name",
        "--idempotency-key",
        help="Name that makes a repeat of this command the same job, not a second one.",
        rich_help_panel=_SENDING,
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Show the request, which --config takes, and its plan; make no job. The file is "
        "uploaded.",
        rich_help_panel=_SENDING,
    ),
]
Watch = Annotated[
    bool, typer.Option("--watch", "-w", help="Watch the job at once.", rich_help_panel=_SENDING)
]


@dataclass(frozen=True, kw_only=True)
class Named:
    """Members of the job that have an option of their own."""

    model: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", help="Base model, or the final model or a checkpoint of a job: ft:..."
        ),
    ] = None
    suffix: Annotated[
        str | None, typer.Option("--suffix", help="Your part of the new model's name.")
    ] = None
    metadata: Annotated[
        list[str] | None,
        typer.Option("--metadata", metavar="KEY=VALUE", help="Kept with the job; repeatable."),
    ] = None
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            metavar="METHOD",
            parser=method_name,
            autocompletion=complete_method,
            help="Training method; default: supervised.",
            rich_help_panel=_TRAINING,
        ),
    ] = None
    grader: Annotated[
        Path | None,
        typer.Option(
            "--grader",
            metavar="FILE",
            help="Grader for reinforcement, in OpenAI's form as JSON.",
            rich_help_panel=_TRAINING,
        ),
    ] = None
    epochs: Annotated[
        int | None,
        typer.Option("--epochs", min=1, help="Passes over the file.", rich_help_panel=_TRAINING),
    ] = None
    batch_size: Annotated[
        int | None,
        typer.Option("--batch-size", min=1, help="Examples per step.", rich_help_panel=_TRAINING),
    ] = None
    learning_rate: Annotated[
        float | None,
        typer.Option(
            "--learning-rate",
            help="Peak learning rate, for example 1e-5.",
            rich_help_panel=_TRAINING,
        ),
    ] = None
    max_seq_len: Annotated[
        int | None,
        typer.Option(
            "--max-seq-len",
            min=16,
            help="Tokens at which a sequence is cut off.",
            rich_help_panel=_TRAINING,
        ),
    ] = None
    lora: Annotated[
        bool,
        typer.Option("--lora", help="Train low-rank adapters only.", rich_help_panel=_TRAINING),
    ] = False
    lora_rank: Annotated[
        int | None,
        typer.Option(
            "--lora-rank",
            min=1,
            help="Rank of the adapters; implies --lora.",
            rich_help_panel=_TRAINING,
        ),
    ] = None
    qlora: Annotated[
        bool,
        typer.Option(
            "--qlora", help="Train adapters over a base in 4 bits.", rich_help_panel=_TRAINING
        ),
    ] = False
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            min=0,
            help="Random seed: the same seed gives the same run.",
            rich_help_panel=_TRAINING,
        ),
    ] = None
    nodes: Annotated[
        int | None,
        typer.Option(
            "--nodes",
            min=1,
            help="Number of machines; default: the planner's choice.",
            rich_help_panel=_MACHINES,
        ),
    ] = None

    def members(self) -> Iterator[tuple[str, object]]:
        """Dotted members of the request that were given, without those of the method."""
        given = {
            "model": self.model,
            "suffix": self.suffix,
            "seed": self.seed,
            "training.learning_rate": self.learning_rate,
            "training.max_seq_len": self.max_seq_len,
            "training.adapter.r": self.lora_rank,
            "infrastructure.nodes": self.nodes,
        }
        if self.lora or self.qlora:
            given["training.adapter.type"] = "qlora" if self.qlora else "lora"
        yield from ((path, value) for path, value in given.items() if value is not None)

    def hyperparameters(self) -> Json:
        """Those that OpenAI has, as far as they were given."""
        given = {"n_epochs": self.epochs, "batch_size": self.batch_size}
        return {name: value for name, value in given.items() if value is not None}
