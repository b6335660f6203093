"""Options of `rekindle submit` for common members; --set and --config cover the rest."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from rekindle.cli.submit import presets

Json = dict[str, Any]
_TRAINING, _MACHINES = "Training", "Machines"
_SENDING, _REST = "Submission", "All other members"


def parse_method(text: str) -> str:
    """Return the name of a training method; raise BadParameter for any other text."""
    from contract.methods import METHODS

    if text not in METHODS:
        names = ", ".join(map(repr, METHODS))
        raise typer.BadParameter(f"{text!r} is not one of {names}.")
    return text


def method_help() -> str:
    """Return all method names with a short description each."""
    from contract.methods import METHODS

    return "; ".join(f"{name} ({m.label.partition(': ')[2]})" for name, m in METHODS.items())


def complete_method(incomplete: str) -> list[tuple[str, str]]:
    """Return completions of --method."""
    from contract.methods import METHODS

    return [(name, m.label) for name, m in METHODS.items() if name.startswith(incomplete)]


def complete_setting(incomplete: str) -> list[tuple[str, str]]:
    """Return completions of --set."""
    from rekindle.cli.submit import job_settings

    return job_settings.complete_setting(incomplete)


def complete_value(params: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return values of --set where the shell, as bash does, splits words at `=`."""
    settings = [str(setting) for setting in params.get("settings") or ()]
    if not settings or "=" in settings[-1]:
        return []
    from rekindle.cli.submit import job_settings

    return job_settings.complete_value(settings[-1], "")


def _complete_file(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    return [(v, about) for v, about in complete_value(ctx.params) if v.startswith(incomplete)]


def _complete_preset(incomplete: str) -> list[tuple[str, str]]:
    all_presets = presets.load_presets().values()
    return [(p.name, p.about) for p in all_presets if p.name.startswith(incomplete)]


File = Annotated[
    str | None,
    typer.Argument(
        metavar="FILE",
        help="Training file in JSONL, one example per line, or the id of an uploaded file. "
        "Optional if --config or --set gives training_file.",
        autocompletion=_complete_file,
    ),
]
Validation = Annotated[
    str | None,
    typer.Option(
        "--validation",
        metavar="FILE",
        help="Validation file or file id; measured, never trained on.",
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(
        "--preset",
        metavar="NAME",
        help="Preset to start from (see `rekindle presets`); other options override it.",
        autocompletion=_complete_preset,
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="File with job members in YAML, JSON or TOML, as in POST /v1/fine_tuning/jobs. "
        "Options override it.",
        rich_help_panel=_REST,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="MEMBER=VALUE",
        help="Any job member, for example training.ema_decay=0.99; the value is YAML. "
        "Repeatable; overrides all other options.",
        rich_help_panel=_REST,
        autocompletion=complete_setting,
    ),
]
Name = Annotated[
    str | None,
    typer.Option(
        "--name",
        "--idempotency-key",
        help="Idempotency key: repeating the command with it creates no second job.",
        rich_help_panel=_SENDING,
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Show the request (usable with --config) and its plan; create no job. Uploads the "
        "file.",
        rich_help_panel=_SENDING,
    ),
]
Watch = Annotated[
    bool,
    typer.Option("--watch", "-w", help="Watch the job after submission.", rich_help_panel=_SENDING),
]


@dataclass(frozen=True, kw_only=True)
class MemberOptions:
    """Options for common members of the job."""

    model: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", help="Base model, or a job's final model or checkpoint (ft:...)."
        ),
    ] = None
    suffix: Annotated[
        str | None, typer.Option("--suffix", help="Suffix of the new model's name.")
    ] = None
    metadata: Annotated[
        list[str] | None,
        typer.Option(
            "--metadata", metavar="KEY=VALUE", help="Metadata to store with the job; repeatable."
        ),
    ] = None
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            metavar="METHOD",
            parser=parse_method,
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
            help="Grader for reinforcement: JSON file in OpenAI's format.",
            rich_help_panel=_TRAINING,
        ),
    ] = None
    epochs: Annotated[
        int | None,
        typer.Option(
            "--epochs",
            min=1,
            help="Number of passes over the training file.",
            rich_help_panel=_TRAINING,
        ),
    ] = None
    batch_size: Annotated[
        int | None,
        typer.Option(
            "--batch-size", min=1, help="Number of examples per step.", rich_help_panel=_TRAINING
        ),
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
            help="Maximum sequence length in tokens; longer examples are cut off.",
            rich_help_panel=_TRAINING,
        ),
    ] = None
    lora: Annotated[
        bool,
        typer.Option("--lora", help="Train LoRA adapters only.", rich_help_panel=_TRAINING),
    ] = False
    lora_rank: Annotated[
        int | None,
        typer.Option(
            "--lora-rank",
            min=1,
            help="Rank of the LoRA adapters; implies --lora.",
            rich_help_panel=_TRAINING,
        ),
    ] = None
    qlora: Annotated[
        bool,
        typer.Option(
            "--qlora", help="Train LoRA adapters on a 4-bit base model.", rich_help_panel=_TRAINING
        ),
    ] = False
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            min=0,
            help="Random seed of the training run.",
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
        """Yield dotted members that were given, except those of the method."""
        values = {
            "model": self.model,
            "suffix": self.suffix,
            "seed": self.seed,
            "training.learning_rate": self.learning_rate,
            "training.max_seq_len": self.max_seq_len,
            "training.adapter.r": self.lora_rank,
            "infrastructure.nodes": self.nodes,
        }
        if self.lora or self.qlora:
            values["training.adapter.type"] = "qlora" if self.qlora else "lora"
        yield from ((path, value) for path, value in values.items() if value is not None)

    def hyperparameters(self) -> Json:
        """Return OpenAI's hyperparameters that were given."""
        values = {"n_epochs": self.epochs, "batch_size": self.batch_size}
        return {name: value for name, value in values.items() if value is not None}
