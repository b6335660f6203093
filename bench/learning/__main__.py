"""Benchmark that trains the tiny model with every method and checks that it learns.

Run it with `python -m bench.learning [--only NAME ...] [--rows KIND=FILE ...] [--picture FILE]
[--json [FILE]]`. It trains on CPU. Rows are generated, or read from the files of --rows (kinds:
chats, preferences, prompts).

A measure is the mean of a metric over the last fifth of the steps. For supervised training it is
this mean divided by the mean of the first fifth. A reward model sees each pair once, and its
accuracy is computed before the update on that pair. A missed bar does not change the exit status.
Exit 2: a run did not finish.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench import report
from bench.learning.cases import CASES, LearningCase
from bench.report import CANNOT_MEASURE, ROOT, CannotMeasure, Measure, print_progress

TAIL = 3000
TIMEOUT = 1800.0  # timeout of one case, seconds
Curve = list[tuple[int, float]]


def main() -> int:
    """Train all chosen cases, publish and draw the results and return the exit status."""
    options = _options()
    rows = dict(pair.split("=", 1) for pair in options.rows)
    curves: dict[str, Curve] = {}
    try:
        for name in options.only:
            print_progress(f"{name}: {CASES[name].what}")
            curves[name] = _run_case(name, CASES[name], rows)
    except CannotMeasure as error:
        print_progress(f"cannot measure: {error}")
        return CANNOT_MEASURE
    measures = [_measure(name, curve) for name, curve in curves.items()]
    report.publish("learning", measures, options.json, curves=curves)
    if options.picture:
        _draw(curves, options.picture)
    return 0


def _options() -> argparse.Namespace:
    parser = report.option_parser("learning", __doc__)
    add = parser.add_argument
    add("--only", nargs="+", choices=CASES, default=tuple(CASES), help="Cases to train (all).")
    add("--rows", nargs="+", default=(), metavar="KIND=FILE", help="Files of rows to train on.")
    add("--picture", type=Path, metavar="FILE", help="File for a picture of the curves.")
    return parser.parse_args()


def _run_case(name: str, case: LearningCase, rows: Mapping[str, str]) -> Curve:
    with tempfile.TemporaryDirectory(prefix="rekindle-bench-") as folder:
        own = [str(Path(rows[case.rows]).resolve())] if case.rows in rows else []
        _run(["bench.learning.ranks.prepare", folder, name, *own])
        run = Path(folder) / "run"
        world = ("--nproc-per-node=1", "--standalone")
        _run(["torch.distributed.run", *world, "-m", "trainer.train", str(run)])
        lines = (run / "metrics.jsonl").read_text().splitlines()
    values = {step["step"]: step.get(case.figure) for step in map(json.loads, lines)}
    return [(step, value) for step, value in sorted(values.items()) if value is not None]


def _run(module: Sequence[str]) -> None:
    quiet = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", *module],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT,
        env={**os.environ, **quiet, "REKINDLE_ACCELERATOR": "cpu", "DS_ACCELERATOR": "cpu"},
    )
    if done.returncode:
        raise CannotMeasure((done.stdout + done.stderr)[-TAIL:])


def _measure(name: str, curve: Curve) -> Measure:
    case = CASES[name]
    return Measure(
        name=f"{name}_{case.figure}",
        value=round(case.reached([value for _, value in curve]), 4),
        unit="share" if case.lower_is_better else case.figure,
        bar=case.bar,
        higher_is_better=not case.lower_is_better,
    )


def _draw(curves: Mapping[str, Curve], path: Path) -> None:
    import matplotlib as mpl  # noqa: PLC0415 - only for who wants a picture

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    across = 3
    down = -(-len(curves) // across)
    figure, grid = plt.subplots(down, across, figsize=(4 * across, 2.6 * down), squeeze=False)
    for axes in grid.flat[len(curves) :]:
        axes.set_visible(False)
    for axes, (name, curve) in zip(grid.flat, curves.items(), strict=False):
        axes.plot(*zip(*curve, strict=True), linewidth=1.2)
        axes.set_title(f"{name}: {CASES[name].figure}", fontsize=9)
        axes.set_xlabel("step", fontsize=8)
        axes.tick_params(labelsize=7)
        axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


if __name__ == "__main__":
    sys.exit(main())
