"""Benchmark of the trainer against Hugging Face's Trainer with DeepSpeed.

Run it with `python -m bench.trainer [--hidden N] [--layers N] [--ranks N] [--lora] ...
[--json [FILE]]`. It trains the same model on the same rows in the same order, in alternating
rounds: Rekindle padded, Rekindle packed, and Hugging Face's Trainer. It runs on CPU, or with
`--accelerator cuda` on one GPU per rank.

Columns of the table. Padding does not count as tokens. Warm-up steps are not counted:

    tokens/s    tokens per second of all ranks together
    cpu         CPU seconds of all processes per 1,000 tokens; the most robust against other load
    private     peak private memory, summed over all ranks
    files       peak of mapped file pages, which the system can reclaim
    shared      peak shared memory, which holds Rekindle's saves
    all         peak of private and shared memory together; its bar applies on CPU
    gpu         peak memory in use on the fullest GPU, by its driver; its bar applies on GPUs
    mfu         model FLOPs utilization of the last step, reported by Rekindle's trainer; GPUs only

The best round counts. A missed bar does not change the exit status. Exit 2: it could not measure.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from bench import report
from bench.report import CANNOT_MEASURE, CannotMeasure, Measure, print_progress
from bench.trainer import run
from bench.trainer.case import PACKED, REKINDLE, RIVAL, Inputs, TrainerCase
from bench.trainer.run import ContestantUsage

MIB = 2**20
KINDS = ("private", "files", "shared", "all", run.OF_GPU)
HEAD = ("contestant", "tokens/s", "cpu s/1k", *(f"{kind} MiB" for kind in KINDS), "mfu")
NUMBERS = (  # option, default, help
    ("--hidden", 384, "Hidden size of the model"),
    ("--layers", 6, "Layers of the model"),
    ("--vocabulary", 16_384, "Size of the vocabulary"),
    ("--ranks", 1, "Number of training processes"),
    ("--micro-batch", 4, "Rows of a micro-batch"),
    ("--global-batch", 16, "Rows of a step"),
    ("--max-seq-len", 512, "Maximum number of tokens of a row"),
    ("--steps", 12, "Number of steps"),
    ("--warmup", 2, "First steps, which are not counted"),
    ("--loss-chunk", 0, "Positions whose logits are computed at once; 0: all"),
    ("--rounds", 2, "Rounds of all contestants, of which the best counts"),
)
Rounds = dict[str, list[ContestantUsage]]


def main() -> int:
    """Run all rounds, print the table and return whether it could measure, as an exit status."""
    options = _options()
    case = _case(options)
    folder = Path(tempfile.mkdtemp(prefix="rekindle-bench-"))
    rounds: Rounds = {name: [] for name in options.only}
    try:
        case.write(folder / "case.json")
        run.prepare(folder)
        for number in range(options.rounds):
            for name in options.only:
                print_progress(f"round {number + 1} of {options.rounds}: {name}")
                rounds[name].append(run.watch(folder, name, case))
                shutil.rmtree(folder / name / "outbox", ignore_errors=True)
                (folder / name / "progress").unlink()
        inputs = Inputs.read(folder / "inputs.json")
    except CannotMeasure as error:
        print_progress(f"cannot measure: {error}")
        return CANNOT_MEASURE
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    _show(case, inputs, rounds, options.json)
    return 0


def _options() -> argparse.Namespace:
    parser = report.option_parser("trainer", __doc__)
    add = parser.add_argument
    for option, default, text in NUMBERS:
        add(option, type=int, default=default, help=f"{text} ({default}).")
    add("--precision", choices=("fp32", "bf16"), default="fp32", help="Precision (fp32).")
    add("--zero-stage", type=int, choices=(1, 2, 3), default=2, help="ZeRO stage (2).")
    add("--accelerator", choices=("cpu", "cuda"), default="cpu", help="Device (cpu).")
    add("--lora", action="store_true", help="Train LoRA adapters.")
    add("--checkpointing", action="store_true", help="Recompute activations.")
    names = (REKINDLE, PACKED, RIVAL)
    add("--only", nargs="+", choices=names, default=names, help="Contestants to measure (all).")
    return parser.parse_args()


def _case(options: argparse.Namespace) -> TrainerCase:
    names = TrainerCase.__dataclass_fields__
    return TrainerCase(**{name: value for name, value in vars(options).items() if name in names})


def _show(case: TrainerCase, inputs: Inputs, all_rounds: Rounds, to: Path | None) -> None:
    report.table(HEAD, [_row(name, case, inputs, rounds) for name, rounds in all_rounds.items()])
    results = (
        list(_measures(case, inputs, all_rounds))
        if len(all_rounds) == len((REKINDLE, PACKED, RIVAL))
        else []
    )
    mfu = {name: rounds[-1].mfu for name, rounds in all_rounds.items()}
    case_members, parameters = asdict(case), inputs.parameters
    report.publish("trainer", results, to, case=case_members, parameters=parameters, mfu=mfu)


def _row(
    name: str, case: TrainerCase, inputs: Inputs, rounds: Sequence[ContestantUsage]
) -> tuple[object, ...]:
    speed, cpu = _best(case, inputs, rounds)
    pages = (_peak(rounds, kind) for kind in KINDS)
    mfu = rounds[-1].mfu
    return (name, round(speed), round(cpu, 3), *pages, round(mfu, 3) if mfu else "-")


def _measures(case: TrainerCase, inputs: Inputs, rounds: Rounds) -> Sequence[Measure]:
    """Return the measures of packed Rekindle, with the other trainer's values as bars.

    Padded Rekindle is listed as a rival.
    """
    (speed, cpu), (plain, plain_cpu), (their_speed, their_cpu) = (
        _best(case, inputs, rounds[name]) for name in (PACKED, REKINDLE, RIVAL)
    )
    kind = "all" if case.accelerator == "cpu" else run.OF_GPU
    memory, plain_memory, their_memory = (
        _peak(rounds[name], kind) for name in (PACKED, REKINDLE, RIVAL)
    )
    return [
        Measure(
            name="tokens_per_second",
            value=round(speed),
            unit="tokens/s",
            bar=round(their_speed),
            rivals={RIVAL: round(their_speed), "ours_padded": round(plain)},
            higher_is_better=True,
        ),
        Measure(
            name="cpu_s_per_1k_tokens",
            value=round(cpu, 3),
            unit="CPU-s",
            bar=round(their_cpu, 3),
            rivals={RIVAL: round(their_cpu, 3), "ours_padded": round(plain_cpu, 3)},
        ),
        Measure(
            name="peak_memory_mib",
            value=memory,
            unit="MiB",
            bar=their_memory,
            rivals={RIVAL: their_memory, "ours_padded": plain_memory},
        ),
    ]


def _best(
    case: TrainerCase, inputs: Inputs, rounds: Sequence[ContestantUsage]
) -> tuple[float, float]:
    rates = [usage.rate(inputs.tokens, case.warmup) for usage in rounds]
    return max(speed for speed, _ in rates), min(cpu for _, cpu in rates)


def _peak(rounds: Sequence[ContestantUsage], kind: str) -> int:
    return round(min(usage.peak[kind] for usage in rounds) / MIB)


if __name__ == "__main__":
    sys.exit(main())
