"""`report.json` in the final model's folder: model, data, results.

For programs; `trainer/export/model_card.py` has the same for people. The job's cost is missing: the
service knows prices, nodes do not.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from safetensors import safe_open

from rendering.rows import read_chat
from trainer.contract import InputFile, Lora, Message, RunSpec
from trainer.contract.wire import LATER
from trainer.data.rows import JsonlRows
from trainer.model.actor_critic import actor_of
from trainer.rundir import RunDir
from trainer.state import RankIdentity, TrainingState
from trainer.verify.result import Verification

REPORT = "report.json"
VERSION = 1
LIBRARIES = ("torch", "transformers", "deepspeed", "peft", "safetensors", "tokenizers")
LARGEST = 700.0  # nats; e to a little more is no float any more


@dataclass(frozen=True, kw_only=True)
class ReportedBase(Message):
    """The model that the run began with."""

    name: str
    revision: str


@dataclass(frozen=True, kw_only=True)
class ReportedFile(Message):
    """A file of rows."""

    name: str
    size: int  # bytes
    sha256: str
    rows: int


@dataclass(frozen=True, kw_only=True)
class ReportedValidation(Message):
    """The validation file's measure before the first step and after the last one."""

    measure: str  # "loss", or "reward": the mean grade of the model's answers
    before: float | None  # None: not measured, or no finite number
    after: float | None
    perplexity_before: float | None = None  # exp(loss), where the loss is a mean over tokens
    perplexity_after: float | None = None


@dataclass(frozen=True, kw_only=True)
class ReportedSize(Message):
    """The exported weights."""

    parameters: int
    trained_parameters: int  # with adapters theirs, which are merged now
    bytes: int


@dataclass(frozen=True, kw_only=True)
class ReportedQuantization(Message):
    """The result of `python -m trainer.compress` on the export."""

    to: str  # "int8", "nf4" or "2:4"
    made_with: str  # the library and its version
    bytes: int  # of the weights
    rows: int  # of the validation file that were measured; 0: none
    loss_before: float | None  # on them, of the export
    loss_after: float | None


@dataclass(frozen=True, kw_only=True)
class TrainingReport(Message):
    """The whole report."""

    version: int
    job_id: str
    method: str
    base_model: ReportedBase
    lora: Lora | None
    steps: int
    samples: int
    tokens: int | None  # trained; None: a part of the run was trained before they were counted
    train_loss: float | None  # of the last step
    max_seq_len: int  # tokens; longer rows were cut
    date: str  # what chat templates got for today
    training_file: ReportedFile
    validation_file: ReportedFile | None
    validation: ReportedValidation | None
    averaged: bool  # the weights are their average; `validation` is of the last step's
    model: ReportedSize
    precision: str
    seed: int
    world_size: int  # processes at the end
    versions: dict[str, str]
    parameters_sha256: str  # of the fp32 masters; see trainer/export/hf_folder.py
    run_spec_sha256: str
    quantized: ReportedQuantization | None = field(default=None, metadata=LATER)
    warnings: tuple[str, ...] = field(default=(), metadata=LATER)  # of what the user should know
    verification: Verification | None = field(default=None, metadata=LATER)  # of these files


def make_report(
    folder: Path,
    rundir: RunDir,
    spec: RunSpec,
    identity: RankIdentity,
    state: TrainingState,
    trained: int,
    parameters_sha256: str,
) -> TrainingReport:
    """Make the report of the model in ``folder``; ``trained``: number of trained parameters."""
    return TrainingReport(
        version=VERSION,
        job_id=spec.job_id,
        method=spec.method,
        base_model=ReportedBase(name=spec.base_model.name, revision=spec.base_model.revision),
        lora=spec.lora,
        steps=state.step,
        samples=state.consumed_samples,
        tokens=state.tokens,
        train_loss=_finite(state.metrics.loss if state.metrics else None),
        max_seq_len=spec.max_seq_len,
        date=spec.date,
        training_file=_data(rundir, spec.training_file),
        validation_file=_data(rundir, spec.validation_file) if spec.validation_file else None,
        validation=_validation(spec, state) if spec.validation_file else None,
        averaged=spec.ema_decay > 0,
        model=_size(folder, trained),
        precision=spec.precision,
        seed=spec.seed,
        world_size=identity.world_size,
        versions={name: version(name) for name in LIBRARIES},
        parameters_sha256=parameters_sha256,
        run_spec_sha256=identity.run_spec_sha256,
    )


def write_report(report: TrainingReport, folder: Path) -> None:
    """Write the report into the model's folder, indented."""
    (folder / REPORT).write_text(json.dumps(report.to_plain(), indent=2) + "\n")


def trained_parameters(engine: Any) -> int:  # noqa: ANN401 - deepspeed is untyped here
    """Return the number of trained parameters of the exported model."""
    return _numel(p for p in actor_of(engine.module).parameters() if p.requires_grad)


def _numel(parameters: Iterable[Any]) -> int:
    return sum(int(getattr(p, "ds_numel", p.numel())) for p in parameters)


def _data(rundir: RunDir, file: InputFile) -> ReportedFile:
    rows = len(JsonlRows(rundir.input(file.path), read_chat))
    return ReportedFile(name=file.name, size=file.size, sha256=file.sha256, rows=rows)


def _validation(spec: RunSpec, state: TrainingState) -> ReportedValidation:
    before = _finite(state.valid_loss_before)
    after = _finite(state.metrics.valid_loss if state.metrics else None)
    if spec.reinforcement is not None:  # its evaluation is the mean grade below zero
        return ReportedValidation(
            measure="reward", before=_negative(before), after=_negative(after)
        )
    per_token = spec.method == "supervised"
    return ReportedValidation(
        measure="loss",
        before=before,
        after=after,
        perplexity_before=_perplexity(before) if per_token else None,
        perplexity_after=_perplexity(after) if per_token else None,
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _negative(value: float | None) -> float | None:
    return None if value is None else -value


def _perplexity(loss: float | None) -> float | None:
    return None if loss is None or loss > LARGEST else math.exp(loss)


def weight_bytes(folder: Path) -> int:
    """Return the bytes of the weights in a model's folder, adapters excluded."""
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def _size(folder: Path, trained: int) -> ReportedSize:
    """Measure the weights by their headers, where shared weights occur once."""
    files = sorted(folder.glob("*.safetensors"))
    count = 0
    for path in files:
        with safe_open(path, "pt") as weights:
            shapes = [weights.get_slice(name).get_shape() for name in weights.keys()]  # noqa: SIM118
        count += sum(math.prod(shape) for shape in shapes)
    return ReportedSize(parameters=count, trained_parameters=trained, bytes=weight_bytes(folder))
