"""`python -m trainer.compress MODEL TARGET --to int8`: compress the weights of a finished model.

MODEL is a folder of `rekindle download`. The weights of all linear layers but the head change.
`int8` is LLM.int8 (Dettmers et al. 2022), which computes outliers in the model's precision. `nf4`
is weights only, with double-quantized scales (Dettmers et al. 2023). `from_pretrained` loads both
where bitsandbytes is installed. `2:4` sets the two smallest of every four weights in a row to zero
(Mishra et al. 2021): files stay as large, and sparse tensor cores multiply twice as fast where a
program uses them. There is no calibration and no further training.

TARGET appears only once it was loaded again and gave equal logits. With `--validation FILE`, the
chats that the job was validated with, the loss is measured before and after, on this machine.
"""

import argparse
import math
import shutil
import sys
from datetime import date
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm  # type: ignore[import-untyped]  # it ships no types
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    BitsAndBytesConfig,
)
from transformers.pytorch_utils import Conv1D
from transformers.utils.logging import disable_progress_bar

from rendering.rows import read_chat
from rendering.tokens import tokenize_chat
from trainer.data.batch import Batch, padded
from trainer.data.rows import JsonlRows
from trainer.export.companion_files import CARD
from trainer.export.report import (
    REPORT,
    ReportedQuantization,
    TrainingReport,
    write_report,
)
from trainer.methods.supervised import SupervisedLoss
from trainer.model.precision import import_uncompiled
from trainer.model.sequence_head import METHODS as WITH_HEAD
from trainer.model.tokenizer import load_tokenizer
from trainer.verify.files import weight_bytes

HEADS = ["lm_head", "score", "classifier"]  # small, and their output is the result
INT8, NF4, SPARSE = KINDS = ("int8", "nf4", "2:4")
GROUP, ZEROS = 4, 2  # in every group of GROUP weights, ZEROS become zero
PROBE = 64  # tokens that are looked at when the model is loaded again
PART = ".part"


class CompressionError(Exception):
    """Nothing was written; the message says why and what to do."""


def main() -> int:
    """Run the command; exit with status 1 and a message when it fails."""
    parser = argparse.ArgumentParser(prog="python -m trainer.compress", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--to", choices=KINDS, required=True)
    parser.add_argument("--validation", type=Path)
    parser.add_argument("--rows", type=int, default=100, help="of the validation file (100)")
    options = parser.parse_args()
    disable_progress_bar()
    try:
        done = compress_model(
            options.model, options.target, options.to, options.validation, options.rows
        )
    except CompressionError as error:
        parser.exit(1, f"error: {error}\n")
    sys.stdout.write(done.to_json() + "\n")
    return 0


def compress_model(
    model: Path, target: Path, kind: str, validation: Path | None = None, rows: int = 100
) -> ReportedQuantization:
    """Write TARGET whole or not at all; on the CPU."""
    if target.exists():
        raise CompressionError(f"{target} is there already; name a folder that is not")
    report = _report(model)
    import_uncompiled()
    if validation is not None and report.method != "supervised":
        raise CompressionError(
            f"a {report.method} model has no loss on chats; leave --validation out"
        )
    batches = _batches(model, report, validation, rows) if validation else []
    if batches:
        _print_progress(f"measuring the loss of {model} on {len(batches)} chats")
    before = _mean_loss(_load(model, report), batches) if batches else None
    _print_progress(f"making {_weights_text(kind)}, and loading them again")
    staging = target.with_name(f".{target.name}{PART}")
    shutil.rmtree(staging, ignore_errors=True)
    after = _write(model, staging, report, kind, batches)
    done = ReportedQuantization(
        to=kind,
        made_with=_library_version(kind),
        bytes=weight_bytes(staging),
        rows=len(batches),
        loss_before=before,
        loss_after=after,
    )
    write_report(_add_quantization(report, done), staging)
    staging.rename(target)
    return done


def _report(model: Path) -> TrainingReport:
    if not (model / REPORT).is_file():
        raise CompressionError(
            f"{model} has no {REPORT}; give a folder that `rekindle download` has made"
        )
    return TrainingReport.from_json((model / REPORT).read_bytes())


def _add_quantization(report: TrainingReport, done: ReportedQuantization) -> TrainingReport:
    return TrainingReport.from_dict(report.to_plain() | {"quantized": done.to_plain()})


def _load(folder: Path, report: TrainingReport, **options: Any) -> Any:  # noqa: ANN401 - transformers is untyped
    causal = report.method not in WITH_HEAD
    kind: Any = AutoModelForCausalLM if causal else AutoModelForSequenceClassification
    return kind.from_pretrained(folder, dtype="auto", local_files_only=True, **options).eval()


def _write(
    model: Path, folder: Path, report: TrainingReport, kind: str, batches: list[Batch]
) -> float | None:
    """Write the folder, load it again, and return the loss of what was loaded."""
    small = _compress_weights(model, report, kind)
    small.save_pretrained(folder)  # before it computes: newer CPUs repack 4 bits then
    logits = _probe_logits(small)
    del small
    for file in sorted(model.iterdir()):
        weights = file.name.endswith((".safetensors", ".safetensors.index.json"))
        if file.is_file() and not weights and not (folder / file.name).exists():
            shutil.copyfile(file, folder / file.name)
    if (folder / CARD).exists():
        with (folder / CARD).open("a", encoding="utf-8") as card:
            card.write(
                f"- Linear layers have {_weights_text(kind)}; the results are from before.\n"
            )
    reloaded = _load(folder, report)
    if batches:
        _print_progress("measuring the loss again")
    if not torch.equal(_probe_logits(reloaded), logits):
        shutil.rmtree(folder)
        raise CompressionError(
            f"with {_weights_text(kind)} it loads as another model; use it as it is"
        )
    return _mean_loss(reloaded, batches) if batches else None


def _print_progress(message: str) -> None:
    sys.stderr.write(f"compress: {message} ...\n")


def _weights_text(kind: str) -> str:
    return "weights of which half are zero (2:4)" if kind == SPARSE else f"weights in {kind}"


def _library_version(kind: str) -> str:
    library = "torch" if kind == SPARSE else "bitsandbytes"
    return f"{library} {version(library)}"


def _compress_weights(model: Path, report: TrainingReport, kind: str) -> Any:  # noqa: ANN401
    if kind != SPARSE:
        return _load(model, report, quantization_config=_settings(kind))
    dense = _load(model, report)
    for name, layer in dense.named_modules():
        is_linear = isinstance(layer, torch.nn.Linear | Conv1D)
        if is_linear and name.rpartition(".")[2] not in HEADS:
            _prune(layer.weight.data.T if isinstance(layer, Conv1D) else layer.weight.data, name)
    return dense


def _prune(weight_oi: torch.Tensor, name: str) -> None:
    """Set the smallest weights of every group along the inputs to zero, in place."""
    if weight_oi.shape[1] % GROUP:
        raise CompressionError(
            f"{name} has {weight_oi.shape[1]} inputs, which is no multiple of {GROUP}"
        )
    groups_ogf = weight_oi.unflatten(1, (-1, GROUP))
    smallest_ogz = groups_ogf.abs().argsort(dim=-1, stable=True)[..., :ZEROS]
    weight_oi.copy_(groups_ogf.scatter(-1, smallest_ogz, 0).flatten(1))


def _settings(kind: str) -> BitsAndBytesConfig:
    if kind == INT8:
        return BitsAndBytesConfig(load_in_8bit=True, llm_int8_skip_modules=HEADS)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
        llm_int8_skip_modules=HEADS,
    )


def _probe_logits(model: Any) -> torch.Tensor:  # noqa: ANN401
    """Return the logits of the first tokens of the vocabulary."""
    ids = torch.arange(PROBE).unsqueeze(0) % model.config.get_text_config().vocab_size
    with torch.no_grad():
        logits: torch.Tensor = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
    return logits


def _batches(model: Path, report: TrainingReport, file: Path, rows: int) -> list[Batch]:
    """Return the file's first rows, one a batch."""
    tokenizer = load_tokenizer(model)
    today, dataset = date.fromisoformat(report.date), JsonlRows(file, read_chat)
    chats = islice((dataset[row][0] for row in range(len(dataset))), rows)
    return [padded([tokenize_chat(tokenizer, row, report.max_seq_len, today)], 0) for row in chats]


def _mean_loss(model: Any, batches: list[Batch]) -> float | None:  # noqa: ANN401
    """Return the mean loss over trained tokens; None where there are none."""
    method = SupervisedLoss()
    progress = tqdm(batches, desc="measuring rows", unit="row")
    with torch.no_grad():
        loss = math.fsum(float(method.scores(model, batch).loss) for batch in progress)
    units = sum(method.units(batch) for batch in batches)
    return loss / units if units else None


if __name__ == "__main__":
    sys.exit(main())
