"""Benchmark of the planner's predictions against published runs.

Run it with `python -m bench.planner --points CSV [--evictions N] [--seed S] [--json [FILE]]`.
It calls the planner's own functions for every run in the CSV and reports the errors. The columns
of the CSV are in docs/benchmarks.md. The planner contains no row of the CSV. Its coefficients and
their sources are in `service/domain/performance/efficiency.py` and `memory.py`.

Columns of the error table, in percent of the measured value: mean absolute error, 90th percentile
and maximum. Rows of the table:

    stored        with the product's coefficients; on points that they were not fitted to, this is
                  what a user gets
    5 folds       each point with coefficients fitted to the other four folds
    other sizes   each point with coefficients fitted to models of other sizes
    halves        each point with coefficients fitted to the other half
    cold          points of training programs that the product has no coefficients for
    as if cold    points of known programs, with the coefficients for unknown ones
    few nodes     points on 2 to 16 machines, also refused ones, with the network coefficients that
                  jobs are planned with
    few, held out the same points, each with a factor fitted to the other GPU families
    few, as many  the same points, with the factor fitted to hundreds of GPUs
    calibrated    each point after calibration with any two other points of its program, model,
                  method and GPU
    refused       points for which the planner promises no time, and their errors if it did

`step_mape_same_stack` is the maximum of stored, 5 folds and other sizes. A missed bar does not
change the exit status. Exit 2: it could not measure.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from bench import report
from bench.planner import errors, goodput, memories, points, steps
from bench.planner.errors import Calibrated, Errors
from bench.planner.goodput import GoodputOutcome
from bench.planner.points import PublishedRun
from bench.report import CANNOT_MEASURE, Measure, print_progress, rounded
from service.domain.performance.memory import MARGIN

CONSTANT = "constant_mfu_50"
ONE = "one_network_factor"
RULE = "llama_factory"


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the points, print the errors and return whether it could measure, as an exit status."""
    options = _options(arguments)
    try:
        runs, left_out = points.read(options.points)
    except (OSError, KeyError, UnicodeDecodeError) as error:
        print_progress(f"cannot measure: {options.points}: {error!r}")
        return CANNOT_MEASURE
    if not runs:
        print_progress(f"cannot measure: {options.points} has no usable point")
        return CANNOT_MEASURE
    promised, refused = errors.split_promised(runs)
    outcomes = goodput.outcomes(options.evictions, options.seed)
    calibrated = errors.after_calibration(promised)
    rows = _step_rows(promised, refused) | _few_rows(runs) | {"calibrated": calibrated.ours}
    measures = [*_memory(runs), *_steps(promised, rows, calibrated)]
    measures += [
        Measure(name="step_refused", value=len(refused), unit="points"),
        *_goodput(outcomes),
    ]
    _show(runs, left_out, refused, rows, outcomes)
    report.publish(
        "planner",
        measures,
        options.json,
        points=len(runs),
        left_out=Counter(why.partition(":")[0] for why in left_out),
        refused=[p.label for p in refused],
    )
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = report.option_parser("planner", __doc__)
    add = parser.add_argument
    add("--points", type=Path, required=True, metavar="CSV", help="File of published runs.")
    add("--evictions", type=int, default=6000, help="Evictions of each simulated case (6000).")
    add("--seed", type=int, default=1, help="Random seed of the simulations (1).")
    return parser.parse_args(arguments)


def _step_rows(
    promised: Sequence[PublishedRun], refused: Sequence[PublishedRun]
) -> dict[str, Errors]:
    return {
        "stored": errors.stored(promised),
        "5 folds": errors.cross_validated(promised),
        "other sizes": errors.without_a_size(promised),
        "halves": errors.halves(promised),
        "cold": errors.cold(promised),
        "as if cold": errors.as_if_unknown(promised),
        "refused": errors.refused_errors(refused),
    }


def _few_rows(runs: Sequence[PublishedRun]) -> dict[str, Errors]:
    return {
        "few nodes": errors.few_nodes(runs),
        "few, held out": errors.few_nodes_held_out(runs),
        "few, as many": errors.few_nodes_as_many(runs),
    }


def _memory(runs: Sequence[PublishedRun]) -> list[Measure]:
    rows = memories.measured(runs)
    return [
        Measure(
            name="memory_mape",
            value=rounded(memories.errors(rows).mape, 2),
            unit="%",
            bar=8,
            limit=2,
            rivals={RULE: rounded(memories.rule_errors(rows).mape, 2)},
        ),
        Measure(
            name="memory_under",
            value=memories.under(rows) if rows else None,
            unit="points",
            bar=0,
            limit=0,
            rivals={RULE: memories.rule_under(rows, MARGIN)},
        ),
    ]


def _steps(
    promised: Sequence[PublishedRun], rows: dict[str, Errors], calibrated: Calibrated
) -> list[Measure]:
    same_stack = [p for p in promised if p.stack in steps.STACKS]
    other_stack = [p for p in promised if p.stack not in steps.STACKS]
    same = [m for name in ("stored", "5 folds", "other sizes") if (m := rows[name].mape)]
    few = [m for name in ("few nodes", "few, held out") if (m := rows[name].mape)]
    return [
        _step("step_mape_same_stack", max(same, default=None), 8, _constant(same_stack)),
        _step("step_mape_cold", rows["cold"].mape, 25, _constant(other_stack)),
        _step("step_mape_few_nodes", max(few, default=None), 25, rows["few, as many"].mape, ONE),
        _step("step_mape_calibrated", calibrated.ours.mape, 10, calibrated.constant.mape),
        Measure(
            name="step_interval_coverage",
            value=rounded(calibrated.coverage, 1),
            unit="% within the 80 % interval",
        ),
    ]


def _step(
    name: str, value: float | None, bar: int, rival: float | None, by: str = CONSTANT
) -> Measure:
    return Measure(
        name=name,
        value=rounded(value, 2),
        unit="%",
        bar=bar,
        limit=3,
        rivals={by: rounded(rival, 2)},
    )


def _constant(rows: Sequence[PublishedRun]) -> float | None:
    return errors.of(rows, steps.constant_mfu).mape


def _goodput(outcomes: Sequence[GoodputOutcome]) -> list[Measure]:
    least = goodput.lowest(outcomes)
    rivals = {
        name: rounded(min(o.rivals[name] / o.case.best for o in outcomes))
        for name in goodput.RIVAL_INTERVALS
    }
    return [
        Measure(
            name="goodput_to_closed_form_min",
            value=rounded(least.ratio),
            unit="of the optimum",
            bar=0.97,
            limit=1,
            rivals=rivals,
            higher_is_better=True,
        ),
        Measure(
            name="goodput_formula_error_max",
            value=rounded(max(abs(o.simulated / o.by_formula - 1) for o in outcomes) * 100, 2),
            unit="%",
        ),
    ]


def _show(
    runs: Sequence[PublishedRun],
    left_out: Sequence[str],
    refused: Sequence[PublishedRun],
    rows: dict[str, Errors],
    outcomes: Sequence[GoodputOutcome],
) -> None:
    """Print the tables to standard error."""
    reasons = Counter(why.partition(":")[0] for why in left_out)
    report.table(("rows that are no points, and why", "rows"), reasons.most_common())
    report.table(
        ("refused: waits for the network, or a GPU without measurements", "off by %"),
        [(p.label, rounded(100 * errors.refused_error(p), 0)) for p in refused],
    )
    memory = memories.errors(memories.measured(runs))
    error_rows = {"memory": memory} | {f"step, {name}": row for name, row in rows.items()}
    report.table(("errors", "points", "mean %", "9 of 10 %", "worst %"), _errors(error_rows))
    report.table(("state, band", "every s", "best", "closed form", "simulated"), _lives(outcomes))


def _errors(rows: dict[str, Errors]) -> list[tuple[object, ...]]:
    return [
        (name, e.count, rounded(e.mape, 1), rounded(e.at(0.9), 1), rounded(e.at(1.0), 1))
        for name, e in rows.items()
    ]


def _lives(outcomes: Sequence[GoodputOutcome]) -> list[tuple[object, ...]]:
    return [
        (
            f"{o.case.state}, {o.case.band}",
            round(o.case.chosen_interval),
            rounded(o.case.best),
            rounded(o.by_formula),
            rounded(o.simulated),
        )
        for o in outcomes
    ]


if __name__ == "__main__":
    sys.exit(main())
