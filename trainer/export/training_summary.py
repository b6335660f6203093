"""Describe how a model was trained, in the words of its method: rows of the model card."""

import json
from collections.abc import Iterable

from trainer.contract import Dpo, Lora, Ranked, Reinforcement, RunSpec
from trainer.export.report import TrainingReport
from trainer.methods.descriptor import descriptor_of

Rows = Iterable[tuple[str, str]]


def training_rows(report: TrainingReport, spec: RunSpec) -> Rows:
    """Yield pairs of a setting's name and its value."""
    yield "method", descriptor_of(spec).name(spec)
    if spec.dpo is not None:
        yield from _preferences(spec.dpo)
    for name, value in json.loads(spec.method_options or "{}").items():
        yield name.replace("_", " "), f"{value:g}" if isinstance(value, float) else str(value)
    if spec.ranked is not None:
        yield from _margins(spec.ranked)
    if spec.labels:
        yield "labels", ", ".join(f"`{label}`" for label in spec.labels)
    if spec.reinforcement is not None:
        yield from _grades(spec.reinforcement)
    yield "trained", _trained(report, spec)
    if spec.lora is not None:
        yield "adapters", _adapters(spec.lora)
    yield from _steps(report, spec)
    yield "job", f"`{report.job_id}`, seed {report.seed}, run spec `{report.run_spec_sha256}`"
    yield "made with", ", ".join(f"{name} {number}" for name, number in report.versions.items())


def _preferences(dpo: Dpo) -> Rows:
    yield "loss", dpo.loss
    yield "beta", f"{dpo.beta:g}"
    if dpo.label_smoothing:
        yield "label smoothing", f"{dpo.label_smoothing:g}"


def _margins(ranked: Ranked) -> Rows:
    yield "margin", f"from {ranked.margin_start:g} to {ranked.margin_end:g}"


def _grades(learning: Reinforcement) -> Rows:
    yield "grader", str(json.loads(learning.grader).get("type"))
    yield (
        "answers",
        f"{learning.answers} to a prompt, of up to {learning.max_answer_tokens} tokens, at "
        f"temperature {learning.temperature:g}",
    )
    yield "beta", f"{learning.beta:g}"
    yield "clip", f"{learning.clip:g}"


def _trained(report: TrainingReport, spec: RunSpec) -> str:
    size = f"{report.model.trained_parameters:,} parameters; the model has "
    size += f"{report.model.parameters:,}"
    if spec.train_last_n_layers is not None:
        size += f"; the last {spec.train_last_n_layers} layers"
    return size if spec.train_embeddings else f"{size}; not the embeddings"


def _adapters(lora: Lora) -> str:
    text = f"LoRA on every linear layer, rank {lora.rank}, alpha {lora.alpha}, "
    text += f"dropout {lora.dropout:g}"
    return f"{text}, over the base in 4 bits (NF4)" if lora.quantized else text


def _steps(report: TrainingReport, spec: RunSpec) -> Rows:
    tokens = "" if report.tokens is None else f", {report.tokens:,} trained tokens"
    yield (
        "steps",
        f"{report.steps:,} of {spec.global_batch} rows: {report.samples:,} rows{tokens}",
    )
    yield (
        "learning rate",
        f"{spec.learning_rate:g} at its peak after {spec.warmup_steps} steps, then a cosine to "
        f"{spec.min_lr_ratio:g} of it",
    )
    yield "optimizer", f"AdamW, weight decay {spec.weight_decay:g}"
    yield "precision", report.precision
    if spec.ema_decay:
        yield "averaged", f"exponentially, decay {spec.ema_decay:g}"
