"""Verify an export in a fresh process: files, tokenizer, model, adapter, base model."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from itertools import chain
from pathlib import Path

import torch

from trainer.contract import RunSpec
from trainer.contract.wire import Message
from trainer.export.companion_files import ADAPTER
from trainer.model import sequence_head
from trainer.model.tokenizer import load_tokenizer
from trainer.verify.files import weight_bytes, wrong_files
from trainer.verify.loading import (
    NoMemoryError,
    UnloadableError,
    choose_device,
    free_memory,
    is_out_of_memory,
    load_base,
    load_export,
    merge_adapter,
    with_adapter,
)
from trainer.verify.result import MISMATCH, NOT_VERIFIED, VERIFIED, Comparison, Verification
from trainer.verify.rows import LONGEST, VerificationRow, VerificationRows
from trainer.verify.scores import Values, mean_difference, mean_loss, measure_name, score_rows
from trainer.verify.tokenizer_facts import TokenizerFacts, differences, read_facts


@dataclass(frozen=True, kw_only=True)
class ExpectedExport(Message):
    """All input of the verifying process besides the run spec. Paths are absolute."""

    model: str  # the exported folder
    base: str  # the base model's folder
    data: str  # the file of the rows
    rows: tuple[VerificationRow, ...]
    values: tuple[tuple[float, ...], ...]  # the trainer's, by row
    dtypes: tuple[str, ...]  # of the trained model's weights, as safetensors names them
    tokenizer: TokenizerFacts
    pad_token: str | None  # that a model with a head must pad with
    device: str  # of the trainer, such as "cuda:0"
    exact: bool  # the trainer computes as plain transformers does, if the device is the same
    gpu_memory: int  # bytes that are free; 0 on a CPU
    host_memory: int


MERGED = "adapter merged by peft"
# Mean absolute difference of values that is accepted (ADR 0054): nats per token, or units of a
# reward model's score.
_SAME_DEVICE_TOLERANCES = {"fp32": 1e-3, "bf16": 5e-3, "fp16": 5e-3}  # the same sums
_OTHER_DEVICE_TOLERANCES = {"fp32": 1e-3, "bf16": 1e-1, "fp16": 3e-2}  # or other kernels
CPU_OPERATIONS = 1e14  # for the rows with one model: minutes on the cores of a GPU machine


def verify_export(expected: ExpectedExport, spec: RunSpec) -> Verification:
    """Compare the exported folder with what the trainer expects."""
    faults = chain(
        wrong_files(Path(expected.model), expected.dtypes), _wrong_tokenizer(expected, spec)
    )
    if (fault := next(faults, None)) is not None:
        return Verification(status=MISMATCH, reason=fault)
    try:
        verification = ExportVerifier(expected, spec).run()
    except UnloadableError as error:
        return Verification(status=MISMATCH, reason=str(error))
    except NoMemoryError as error:
        return Verification(status=NOT_VERIFIED, reason=str(error))
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return Verification(status=NOT_VERIFIED, reason=f"memory ran out: {error}")
    return verification


class ExportVerifier:
    """Scores the expected rows with each model in turn, one model in memory."""

    def __init__(self, expected: ExpectedExport, spec: RunSpec) -> None:
        """Choose device and rows; raise NoMemoryError when the larger model does not fit."""
        self._expected, self._spec = expected, spec
        self._model, self._base = Path(expected.model), Path(expected.base)
        memory = (expected.device, expected.gpu_memory, expected.host_memory)
        devices = [choose_device(folder, *memory) for folder in (self._model, self._base)]
        self._device = "cpu" if "cpu" in devices else expected.device
        self._pad_id = load_tokenizer(self._base, spec.method).pad_token_id
        self._rows = _affordable_rows(expected, self._device)
        self._trainer_values: Values = [
            list(of_row) for of_row in expected.values[: len(self._rows)]
        ]

    def run(self) -> Verification:
        """Load and compare. Raises UnloadableError."""
        spec, expected = self._spec, self._expected
        exported = self._score_export()
        base, comparisons = None, []
        if spec.lora is None:
            comparisons = [self._compare("model", exported, "trainer", self._trainer_values)]
            if not sequence_head.has_head(spec):
                base = self._score_base()
        elif spec.lora.quantized:
            base, _, merged = self._score_adapter(quantized=False)
            _, over_four_bits, _ = self._score_adapter(quantized=True)
            comparisons = [
                self._compare(
                    "adapter over 4 bits", over_four_bits, "trainer", self._trainer_values
                ),
                self._compare("model", exported, MERGED, merged),
            ]
        else:
            base, adapted, merged = self._score_adapter(quantized=False)
            comparisons = [
                self._compare("adapter", adapted, "trainer", self._trainer_values),
                self._compare("model", exported, MERGED, merged),
            ]
        mismatches = [c for c in comparisons if not c.agrees]
        return Verification(
            status=MISMATCH if mismatches else VERIFIED,
            reason=_mismatch_text(mismatches[0], measure_name(spec)) if mismatches else "",
            loaded_with=_libraries(adapter=spec.lora is not None),
            device=torch.device(self._device).type,
            file=Path(expected.data).name,
            measure=measure_name(spec),
            sequences=len(self._rows),
            tokens=sum(row.length for row in self._rows),
            scored=sum(map(len, self._trainer_values)),
            trainer_loss=self._loss(self._trainer_values),
            loss=self._loss(exported),
            base_loss=None if base is None else self._loss(base),
            comparisons=tuple(comparisons),
        )

    def _score_export(self) -> Values:
        model = load_export(self._model, self._spec, self._device, self._expected.dtypes)
        return self._score(model)

    def _score_base(self) -> Values:
        return self._score(self._load_base(quantized=False))

    def _score_adapter(self, *, quantized: bool) -> tuple[Values | None, Values, Values]:
        """Return values of the base model, of the adapter over it, and of both merged by peft.

        None for a base model whose head is new; no merged values over 4 bits.
        """
        free_memory()
        model = self._load_base(quantized=quantized)
        base = None if sequence_head.has_head(self._spec) else self._score(model)
        adapted = with_adapter(model, self._model / ADAPTER)
        values = self._score(adapted)
        merged = [] if quantized else self._score(merge_adapter(adapted, self._device))
        return base, values, merged

    def _load_base(self, *, quantized: bool) -> object:
        free_memory()
        arguments = (self._base, self._spec, self._device, self._pad_id)
        return load_base(*arguments, quantized=quantized)

    def _score(self, model: object) -> Values:
        return score_rows(model, self._rows, self._spec, self._device)

    def _compare(self, subject: str, values: Values, against: str, reference: Values) -> Comparison:
        same_kernels = against == MERGED or (
            self._expected.exact and self._device == self._expected.device
        )
        return Comparison(
            what=subject,
            against=against,
            loss=self._loss(values),
            expected=self._loss(reference),
            difference=mean_difference(values, reference),
            tolerance=tolerance(self._spec.precision, same_kernels=same_kernels),
        )

    def _loss(self, values: Values) -> float | None:
        return mean_loss(values, self._rows, self._spec)


def _affordable_rows(expected: ExpectedExport, device: str) -> list[VerificationRow]:
    """Return as many rows as a CPU scores in minutes where the trainer had a GPU; at least 1."""
    rows = list(expected.rows)
    weights = weight_bytes(Path(expected.model)) / 2  # about; in 16 bits, as on any GPU
    while len(rows) > 1 and device == "cpu" and expected.device != "cpu":
        if 2 * weights * sum(row.length for row in rows) <= CPU_OPERATIONS:
            break
        rows.pop()
    return rows


def _wrong_tokenizer(expected: ExpectedExport, spec: RunSpec) -> Iterator[str]:
    """Yield how the exported tokenizer differs, and rows that it tokenizes differently."""
    folder = Path(expected.model)
    try:
        faults = differences(expected.tokenizer, read_facts(folder), expected.pad_token)
        tokenizer = load_tokenizer(folder, spec.method)
    except Exception as error:  # noqa: BLE001 - whatever it is, no program can load it
        yield f"the tokenizer cannot be loaded: {type(error).__name__}: {error}"
        return
    for fault in faults:
        yield f"the tokenizer is not the trainer's: {fault}"
    source = VerificationRows(Path(expected.data), folder / "no tokens", tokenizer, spec)
    for row in expected.rows:
        retokenized = source.get(row.number, LONGEST)
        if retokenized is None or (retokenized.ids, retokenized.trained) != (row.ids, row.trained):
            name = Path(expected.data).name
            yield f"the tokenizer gives other tokens for sequence {row.number + 1} of {name}"


def _mismatch_text(comparison: Comparison, measure: str) -> str:
    """Describe a failed comparison, with both figures."""
    return (
        f"the {comparison.what} has a {measure} of {_number(comparison.loss)}, the "
        f"{comparison.against} of {_number(comparison.expected)}: single values differ by "
        f"{_number(comparison.difference)} on average, at most {comparison.tolerance:g} is accepted"
    )


def _number(value: float | None) -> str:
    return "not a number" if value is None else f"{value:.4f}"


def _libraries(*, adapter: bool) -> str:
    names = ("transformers", *(("peft",) if adapter else ()))
    return " and ".join(f"{name} {version(name)}" for name in names)


def tolerance(precision: str, *, same_kernels: bool) -> float:
    """Return the largest accepted mean absolute difference.

    ``same_kernels``: both compute with the same kernels on the same device.
    """
    return (_SAME_DEVICE_TOLERANCES if same_kernels else _OTHER_DEVICE_TOLERANCES)[precision]
