"""Options of `rekindle submit` for how to train, in groups."""

from dataclasses import dataclass
from typing import Any

from rekindle.cli import submit_options as options

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Leash:
    """How far a model may go from the base model, and what DPO makes of it."""

    beta: options.Beta = None
    dpo_loss: options.Loss = None
    label_smoothing: options.LabelSmoothing = None


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """How long, how much at once, and how fast."""

    epochs: options.Epochs = None
    batch_size: options.BatchSize = None
    learning_rate: options.LearningRate = None
    max_seq_len: options.MaxSeqLen = None
    ema_decay: options.EmaDecay = None
    no_verify: options.NoVerify = False

    def hyperparameters(self) -> Json:
        """Those that OpenAI has, as far as they were told."""
        told = {"n_epochs": self.epochs, "batch_size": self.batch_size}
        return {name: value for name, value in told.items() if value is not None}

    def members(self) -> Json:
        """Of the request's ``training``; None where nothing was told."""
        ours = ("learning_rate", "max_seq_len", "ema_decay")
        told = {name: getattr(self, name) for name in ours}
        return told | {"verify": False if self.no_verify else None}


@dataclass(frozen=True, kw_only=True)
class Memory:
    """What is trained, and where it is held."""

    lora: options.IsLora = False
    lora_rank: options.LoraRank = None
    lora_alpha: options.LoraAlpha = None
    lora_dropout: options.LoraDropout = None
    qlora: options.IsQlora = False
    train_last_layers: options.LastLayers = None
    freeze_embeddings: options.FreezeEmbeddings = False
    loss_chunk: options.LossChunk = None
    offload_optimizer: options.OffloadOptimizer = False

    def members(self) -> Json:
        """Of the request's ``training``; None where nothing was told."""
        return {
            "adapter": self._adapter(),
            "train_last_n_layers": self.train_last_layers,
            "train_embeddings": False if self.freeze_embeddings else None,
            "loss_chunk": self.loss_chunk,
            "offload": "optimizer" if self.offload_optimizer else None,
        }

    def _adapter(self) -> Json | None:
        """Low-rank adapters where they are asked for, or anything about them is."""
        told = {"r": self.lora_rank, "alpha": self.lora_alpha, "dropout": self.lora_dropout}
        told = {name: value for name, value in told.items() if value is not None}
        kind = {"type": "qlora" if self.qlora else "lora"}
        return kind | told if self.lora or self.qlora or told else None


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """How often the state is saved, and which saves are kept."""

    checkpoint_seconds: options.CheckpointSeconds = None
    keep_checkpoints: options.KeepCheckpoints = None
    milestone_every: options.MilestoneEvery = None

    def members(self) -> Json:
        """The same."""
        return {
            "checkpoint_seconds": self.checkpoint_seconds,
            "keep_checkpoints": self.keep_checkpoints,
            "milestone_every_steps": self.milestone_every,
        }
