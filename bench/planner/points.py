"""Published measurements, read from a CSV file and converted to questions for the planner.

Every row becomes a `PublishedRun` or a reason for its rejection: a claim without a measurement, a
way of training that Rekindle does not have, or a missing cell. No row is dropped silently.
"""

import csv
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from service.domain.models.architecture import Architecture
from service.domain.performance.throughput import StepWork
from service.domain.performance.vm_catalogue import SKUS, Sku, lookup
from trainer.contract import Lora, TrainingOptions

Row = Mapping[str, str]
RANK = 64  # LoRA rank in QwenLM's scripts; the CSV has no column for it
PER_NODE = 8
HEAD = 128  # width of an attention head; no column, and no effect
SELECTIVE = 0.3  # share of a forward pass that "selective" recomputes
FULL_TUNING = ("pretrain-full", "full")
MEASURED_SUM = "sum over GPUs"
SPLIT = ("TP", "PP", "MP")
UNTIED = ("qwen", "llama", "mistral")  # models with untied output embeddings


@dataclass(frozen=True, kw_only=True)
class PublishedRun:
    """One published run, as a question for the planner."""

    source: str
    stack: str  # "foundry", "hugging_face" or "other"
    model: str
    method: str
    sku: Sku
    gpus: int
    work: StepWork
    recomputed_share: float  # recomputed share of a forward pass, 0 to 1
    zero: bool  # whether its collectives are DeepSpeed's
    split: bool  # tensor or pipeline parallel: only its compute is predicted
    wholes: int  # parameters trained in addition to adapters
    lora: Lora | None
    seconds: float | None  # time of an optimizer step
    memory: float | None  # bytes of one GPU

    @property
    def nodes(self) -> int:
        """Number of machines with eight GPUs each."""
        return -(-self.gpus // PER_NODE)

    @property
    def per_node(self) -> int:
        """Processes on one machine."""
        return min(self.gpus, PER_NODE)

    @property
    def family(self) -> tuple[str, str, str, str]:
        """Key of the points that share one calibration."""
        return (self.source, self.model, self.method, self.sku.family)

    @property
    def label(self) -> str:
        """Short description for tables."""
        return (
            f"{self.model} {self.method} on {self.gpus} x {self.sku.gpu}, "
            f"{self.work.micro_batch} x {self.work.tokens_per_sequence} tokens"
        )


class Unfit(Exception):
    """Raised for a row that is not a point, with the reason."""


def read(path: Path) -> tuple[list[PublishedRun], list[str]]:
    """Return the points of a file, and the reasons for all other rows."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = [{name: cell or "" for name, cell in row.items()} for row in csv.DictReader(file)]
    points, left_out = [], []
    for row in rows:
        try:
            points.append(_point(row))
        except Unfit as why:
            left_out.append(f"{why}: {row.get('model', '')} ({row.get('source', '')[:60]})")
    return points, left_out


def _point(row: Row) -> PublishedRun:
    method = row["method"]
    if "claim" in row["verified"]:
        raise Unfit("a claim, not a measurement")
    if "estimated" in row["mem_scope"]:
        raise Unfit("estimated by its authors")
    lora = _lora(method)
    if lora is None and method not in FULL_TUNING:
        raise Unfit(f"method {method!r} is no plain training step")
    if not row["act_ckpt"]:
        raise Unfit("it does not say whether activations are recomputed")
    if not row["parallel"] and row["gpus"] not in ("", "1"):
        raise Unfit("it does not say how it was parallelized")
    arch, gpus = _architecture(row), int(_number(row, "gpus"))
    stack = _stack(row["source"])
    split = any(sign in row["parallel"] for sign in SPLIT)
    micro_batch, accumulation = _batch(row, gpus, split=split)
    seq_len = int(_number(row, "seq"))
    recomputes = row["act_ckpt"] not in ("none", "selective")
    work = StepWork(
        arch=arch,
        zero_stage=_zero_stage(row, lora, gpus),
        micro_batch=micro_batch,
        accumulation=accumulation,
        tokens_per_sequence=seq_len,
        options=TrainingOptions(gradient_checkpointing=recomputes, lora=lora),
    )
    return PublishedRun(
        source=row["source"],
        stack=stack,
        model=row["model"],
        method=method,
        sku=_sku(row["gpu"]),
        gpus=gpus,
        work=work,
        recomputed_share=SELECTIVE if row["act_ckpt"] == "selective" else float(recomputes),
        zero="ZeRO" in row["parallel"] or "DeepSpeed" in row["parallel"],
        split=split,
        wholes=2 * arch.embedding_parameters if "emb" in method else 0,
        lora=lora,
        seconds=_seconds(row, micro_batch * accumulation * seq_len),
        memory=_memory(row, gpus),
    )


def _lora(method: str) -> Lora | None:
    if "LoRA" not in method or "/" in method:
        return None
    return Lora(rank=RANK, alpha=16, dropout=0.05, quantized=method.startswith("QLoRA"))


def _stack(source: str) -> str:
    if "llm-foundry" in source:
        return "foundry"
    return "hugging_face" if source.startswith("QwenLM") else "other"


def _sku(gpu: str) -> Sku:
    """Return the VM size with these GPUs: eight per machine, with InfiniBand."""
    if named := lookup(f"Standard_{gpu}"):
        return named
    for spelling in _spellings(gpu):
        for sku in SKUS:
            if sku.gpus == PER_NODE and sku.gpu.startswith(spelling):
                return sku
    raise Unfit(f"GPU {gpu or 'not named'}: no training was measured on such GPUs")


def _spellings(gpu: str) -> Iterator[str]:
    """Yield the catalog's names of a GPU: A100-80GB-SXM is A100-SXM4-80GB there."""
    kind, _, suffix = gpu.partition("-")
    memory = suffix.partition("-")[0]
    if kind in ("A100", "H100"):
        yield f"{kind}-SXM{'4' if kind == 'A100' else '5'}-{memory or '80GB'}"


def _architecture(row: Row) -> Architecture:
    """Return the model's shape from the columns.

    The intermediate size has no column and follows from the number of parameters.
    """
    parameters, layers, hidden, vocab = (
        int(_number(row, name)) for name in ("params", "layers", "hidden", "vocab")
    )
    tied = not row["model"].lower().startswith(UNTIED)
    embeddings = (1 if tied else 2) * vocab * hidden
    intermediate = ((parameters - embeddings) / layers - 4 * hidden**2) / (3 * hidden)
    if intermediate < 1:
        raise Unfit("its columns contradict each other")
    return Architecture(
        parameters=parameters,
        hidden_size=hidden,
        layers=layers,
        vocab_size=vocab,
        heads=max(hidden // HEAD, 1),
        kv_heads=max(hidden // HEAD, 1),
        head_dim=min(HEAD, hidden),
        intermediate_size=round(intermediate),
        max_positions=int(_number(row, "seq")),
        tied=tied,
    )


def _zero_stage(row: Row, lora: Lora | None, gpus: int) -> int:
    """Return the ZeRO stage that the row's program uses.

    QwenLM's full fine-tuning always uses ZeRO-3.
    """
    parallelism = row["parallel"]
    if (
        "ZeRO-3" in parallelism
        or "FULL_SHARD" in parallelism
        or "FSDP2" in parallelism
        or parallelism == "FSDP"
    ):
        return 3
    if lora is None and row["source"].startswith("QwenLM"):
        return 3
    if "SHARD_GRAD_OP" in parallelism or "ZeRO-2" in parallelism:
        return 2
    return 0 if gpus == 1 else 1


def _batch(row: Row, gpus: int, *, split: bool) -> tuple[int, int]:
    """Return the sequences of a micro-batch, and the micro-batches of a step."""
    global_batch = _number(row, "global_batch", 0.0)
    if split and global_batch:
        return 1, max(round(global_batch / gpus), 1)
    accumulation = int(_number(row, "grad_accum", 1.0))
    micro_batch = _number(row, "micro_batch", global_batch / gpus / accumulation)
    if micro_batch < 1:
        raise Unfit("no micro-batch is given")
    return int(micro_batch), accumulation


def _seconds(row: Row, tokens: int) -> float | None:
    """Return the step time, from tokens/s per GPU or from FLOPS by the named formula."""
    if row["tokens_s_gpu"]:
        return tokens / _number(row, "tokens_s_gpu")
    if not row["tflops_gpu"] or "HFU" not in row["flops_basis"]:
        return None
    layers, hidden, seq, vocab = (
        _number(row, name) for name in ("layers", "hidden", "seq", "vocab")
    )
    # Narayanan et al. (2021), equation 3: with checkpointing, for one token.
    flops = 96 * layers * hidden**2 * (1 + seq / (6 * hidden) + vocab / (16 * layers * hidden))
    return tokens * flops / (_number(row, "tflops_gpu") * 1e12)


def _memory(row: Row, gpus: int) -> float | None:
    if not row["mem_gb"] or row["mem_scope"] != MEASURED_SUM:
        return None
    return _number(row, "mem_gb") * 1e9 / gpus


def _number(row: Row, name: str, default: float | None = None) -> float:
    value = row[name]
    if value:
        try:
            number = float(value)
        except ValueError:
            raise Unfit(f"its {name} is no number") from None
        if not 0 < number < math.inf:
            raise Unfit(f"its {name} is no number above zero")
        return number
    if default is None:
        raise Unfit(f"no {name} is given")
    return default
