"""What `rekindle submit` may be told: types and help of its options."""

from typing import Annotated

import typer

from rekindle.cli.submit_method import DpoLoss, Method

_TRAINING, _MACHINES, _SENDING = "How to train", "What to run on", "How to send it"
_PAIRS, _SAVING = "Of DPO", "Adapters, and less memory"

File = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="One chat a line, or what the method learns from, in OpenAI's format where there is "
        "one; or the id of an upload. `rekindle import` makes such files of others.",
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        help="A base model of the service, or what a job made: ft:... Needed without --preset.",
    ),
]
Validation = Annotated[
    str | None,
    typer.Option("--validation", metavar="FILE", help="Rows to measure on, never to train on."),
]
Suffix = Annotated[
    str | None, typer.Option("--suffix", help="A name of yours, part of the result's name.")
]
Metadata = Annotated[
    list[str] | None,
    typer.Option("--metadata", metavar="KEY=VALUE", help="Kept with the job; repeatable."),
]
HowToLearn = Annotated[
    Method | None,
    typer.Option(
        "--method",
        help="(supervised, if not told) from chats; (dpo) from preferences; (reward) from "
        "preferences or rankings, a model that rates answers; (classification) from labelled "
        "texts, one that labels them; or (reinforcement) from prompts, by the grades that its own "
        "answers get.",
        rich_help_panel=_TRAINING,
    ),
]


def _fitting_beta(value: float | None) -> float | None:
    """By hand, as what `min` and `max` of typer name is always inside."""
    if value is not None and not 0 <= value <= 2:
        raise typer.BadParameter(f"it is {value:g}, but it must be 0 to 2.")
    return value


def _fitting_smoothing(value: float | None) -> float | None:
    if value is not None and not 0 <= value < 0.5:
        raise typer.BadParameter(f"it is {value:g}, but it must be at least 0 and below 0.5.")
    return value


def _fitting_decay(value: float | None) -> float | None:
    if value is not None and not 0 <= value < 1:
        raise typer.BadParameter(f"it is {value:g}, but it must be at least 0 and below 1.")
    return value


Beta = Annotated[
    float | None,
    typer.Option(
        "--beta",
        callback=_fitting_beta,
        help="How dear it is to leave the base model, at most 2. DPO: 0.1 if not told, and never "
        "0; reinforcement: 0 (grpo), 0.05 (rloo) or 0.01 (ppo).",
        rich_help_panel=_TRAINING,
    ),
]
Loss = Annotated[
    DpoLoss | None,
    typer.Option("--dpo-loss", help="sigmoid if not told.", rich_help_panel=_PAIRS),
]
LabelSmoothing = Annotated[
    float | None,
    typer.Option(
        "--label-smoothing",
        callback=_fitting_smoothing,
        help="Share of pairs that are taken to be the wrong way round, below 0.5.",
        rich_help_panel=_PAIRS,
    ),
]
Epochs = Annotated[
    int | None,
    typer.Option("--epochs", min=1, help="Passes over the file.", rich_help_panel=_TRAINING),
]
BatchSize = Annotated[
    int | None,
    typer.Option("--batch-size", min=1, help="Examples a step.", rich_help_panel=_TRAINING),
]
LearningRate = Annotated[
    float | None,
    typer.Option(
        "--learning-rate", help="Of the optimizer, such as 1e-5.", rich_help_panel=_TRAINING
    ),
]
MaxSeqLen = Annotated[
    int | None,
    typer.Option(
        "--max-seq-len", min=16, help="Tokens a sequence is cut to.", rich_help_panel=_TRAINING
    ),
]
EmaDecay = Annotated[
    float | None,
    typer.Option(
        "--ema-decay",
        callback=_fitting_decay,
        help="The result is a moving average of the weights, such as 0.999 of the one before.",
        rich_help_panel=_TRAINING,
    ),
]
NoVerify = Annotated[
    bool,
    typer.Option(
        "--no-verify",
        help="Skip the verification of the exported model in a fresh process.",
        rich_help_panel=_TRAINING,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", min=0, help="The same seed, the same run.", rich_help_panel=_TRAINING),
]
CheckpointSeconds = Annotated[
    float | None,
    typer.Option(
        "--checkpoint-seconds", min=1, help="Between two checkpoints.", rich_help_panel=_TRAINING
    ),
]
KeepCheckpoints = Annotated[
    int | None,
    typer.Option(
        "--keep-checkpoints",
        min=1,
        help="The newest so many, beside the best and milestones.",
        rich_help_panel=_TRAINING,
    ),
]
MilestoneEvery = Annotated[
    int | None,
    typer.Option(
        "--milestone-every",
        metavar="STEPS",
        min=1,
        help="Keep a checkpoint for good every so many steps.",
        rich_help_panel=_TRAINING,
    ),
]
Packing = Annotated[
    bool,
    typer.Option(
        "--packing",
        help="Sequences side by side instead of padded to the longest.",
        rich_help_panel=_TRAINING,
    ),
]
IsLora = Annotated[
    bool,
    typer.Option("--lora", help="Train low-rank adapters only.", rich_help_panel=_SAVING),
]
LoraRank = Annotated[
    int | None,
    typer.Option("--lora-rank", min=1, help="Implies --lora.", rich_help_panel=_SAVING),
]
LoraAlpha = Annotated[
    int | None,
    typer.Option("--lora-alpha", min=1, help="Implies --lora.", rich_help_panel=_SAVING),
]
LoraDropout = Annotated[
    float | None,
    typer.Option("--lora-dropout", min=0, help="Implies --lora.", rich_help_panel=_SAVING),
]
IsQlora = Annotated[
    bool,
    typer.Option("--qlora", help="Adapters over a base held in 4 bits.", rich_help_panel=_SAVING),
]
LastLayers = Annotated[
    int | None,
    typer.Option(
        "--train-last-layers",
        min=1,
        metavar="N",
        help="Freeze all layers but the last N; not with adapters.",
        rich_help_panel=_SAVING,
    ),
]
FreezeEmbeddings = Annotated[
    bool,
    typer.Option(
        "--freeze-embeddings",
        help="And a head that is tied to them; not with adapters.",
        rich_help_panel=_SAVING,
    ),
]
LossChunk = Annotated[
    int | None,
    typer.Option(
        "--loss-chunk",
        min=16,
        metavar="POSITIONS",
        help="Logits of so many at once, such as 1024: slower, and less memory.",
        rich_help_panel=_SAVING,
    ),
]
OffloadOptimizer = Annotated[
    bool,
    typer.Option(
        "--offload-optimizer",
        help="Hold the optimizer in the machine's own memory: slower, and less of the GPU's.",
        rich_help_panel=_SAVING,
    ),
]
Nodes = Annotated[
    int | None,
    typer.Option(
        "--nodes", min=1, help="Machines; else the planner chooses.", rich_help_panel=_MACHINES
    ),
]
MinNodes = Annotated[
    int | None,
    typer.Option(
        "--min-nodes",
        min=1,
        help="Elastic: go on with so few when others are evicted, not bit for bit.",
        rich_help_panel=_MACHINES,
    ),
]
Name = Annotated[
    str | None,
    typer.Option(
        "--name",
        "--idempotency-key",
        help="Submitted again under this name it is the same job, not a second one.",
        rich_help_panel=_SENDING,
    ),
]
Watch = Annotated[
    bool, typer.Option("--watch", "-w", help="Watch it at once.", rich_help_panel=_SENDING)
]
