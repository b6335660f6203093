"""Benchmark of the placement policy against rivals and the optimum, on recorded Spot capacity.

Run it with `python -m bench.policy --traces DIR [--gang N] [--json [FILE]] [--picture FILE.svg]`.
It replays one job under the production policy, under published rivals, and with full knowledge of
the future. DIR is a folder or a tree of traces. A request is granted where the recorded count is
at least the gang. Costs are shares of the on-demand cost of the same work. A missed bar does not
change the exit status. Exit 2: there is nothing to replay.
"""

import argparse
import dataclasses
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import report
from bench.policy.coverage import coverage, live_coverage
from bench.policy.lives import (
    ASKING,
    DEADLINES,
    ORACLE,
    REKINDLE,
    RIVALS,
    STAYING,
    WARM,
    PolicyRun,
    Rules,
    lives,
)
from bench.policy.picture import draw
from bench.policy.traces import BadTrace, TraceFolder, read
from bench.report import CANNOT_MEASURE, Measure, print_progress
from service.domain.simulation.simulator import AvailabilitySignals

BAR = 1.1  # maximum cost over the optimum, for deadlines of 1.25 and more
OTHERS = (WARM, STAYING, ASKING)
DEFAULT_SIGNALS = AvailabilitySignals()


def main() -> int:
    """Replay all traces, print the measures, draw the picture and return the exit status."""
    options = _options()
    rules = _rules(options)
    try:
        runs = _replay(read(options.traces, options.gang), options.gang, rules)
    except BadTrace as error:
        print_progress(f"cannot measure: {error}")
        return CANNOT_MEASURE
    measures = [m for deadline in DEADLINES for m in _measures(runs, deadline)]
    measures += _coverage_measures(options.forecasts, options.seed)
    rows = _rows(runs)
    report.table(("folder", "zones", "deadline", *_columns(runs)), rows)
    details = {"gang": options.gang, "rules": dataclasses.asdict(rules), "rows": _plain(runs)}
    report.publish("policy", measures, options.json, **details)
    if options.picture:
        draw(runs, options.picture, gang=options.gang)
    return 0


def _options() -> argparse.Namespace:
    parser = report.option_parser("policy", __doc__)
    add = parser.add_argument
    add("--traces", type=Path, required=True, metavar="DIR", help="Folder or tree of traces.")
    add("--picture", type=Path, metavar="FILE", help="File for a picture of cost and deadline.")
    for option, kind, default, text in NUMBERS:
        add(option, type=kind, default=default, help=f"{text} ({default:g}).")
    for option, text in SWITCHES:
        add(option, action="store_true", help=text)
    return parser.parse_args()


def _above(least: float, *, inclusive: bool = False) -> Callable[[str], float]:
    """Return a type of options: a number above ``least``, or equal if ``inclusive``."""

    def number(text: str) -> float:
        value = float(text)
        if value < least or (value == least and not inclusive):
            relation = "below" if inclusive else "not above"
            raise argparse.ArgumentTypeError(f"{text} is {relation} {least:g}")
        return value

    return number


def _share(text: str) -> float:
    if not 0 <= (value := float(text)) <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return value


def _count(text: str) -> int:
    if (value := int(text)) <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


POSITIVE, AT_LEAST_0 = _above(0), _above(0, inclusive=True)
NUMBERS: tuple[tuple[str, Callable[[str], float], float, str], ...] = (
    ("--gang", _count, 1, "Nodes that start together"),
    ("--hours", POSITIVE, 48.0, "Hours of work"),
    ("--ratio", POSITIVE, 0.3, "Spot price over on-demand price"),
    ("--cold-minutes", POSITIVE, 12.0, "Minutes of a start"),
    (
        "--interval-minutes",
        AT_LEAST_0,
        0.0,
        "Minutes between checkpoints, of which an eviction loses half; 0: notices save in time",
    ),
    ("--loss-minutes", AT_LEAST_0, 0.0, "Minutes that an eviction loses beyond that"),
    ("--egress-dollars", AT_LEAST_0, 0.0, "Cost of moving a checkpoint to another region"),
    ("--hourly-dollars", POSITIVE, 32.77, "On-demand price of a node per hour"),
    ("--windows", _count, 8, "Random start times per zone"),
    ("--seed", int, 1, "Random seed of start times and forecasts"),
    (
        "--score-minutes",
        POSITIVE,
        DEFAULT_SIGNALS.every_s / 60,
        "Minutes between two placement scores",
    ),
    (
        "--score-sensitivity",
        _share,
        DEFAULT_SIGNALS.true_positive_rate,
        "Probability that a score shows capacity where there is some",
    ),
    (
        "--score-false-alarms",
        _share,
        DEFAULT_SIGNALS.false_positive_rate,
        "Probability that a score shows capacity where there is none",
    ),
    ("--forecasts", _count, 2000, "Simulated jobs with a forecast each"),
)
SWITCHES = (
    ("--history", "Also replay with the history that one earlier job would have recorded."),
    ("--staying", "Also replay without scores: a job on demand stays there."),
    ("--asking", "Also replay with requests for Spot during on-demand use."),
)


def _rules(options: argparse.Namespace) -> Rules:
    return Rules(
        work_h=options.hours,
        cold_h=options.cold_minutes / 60,
        lost_h=(options.interval_minutes / 2 + options.loss_minutes) / 60,
        ratio=options.ratio,
        egress_h=options.egress_dollars / (options.hourly_dollars * options.gang),
        windows=options.windows,
        seed=options.seed,
        history=options.history,
        staying=options.staying,
        asking=options.asking,
        signals=AvailabilitySignals(
            every_s=options.score_minutes * 60,
            true_positive_rate=options.score_sensitivity,
            false_positive_rate=options.score_false_alarms,
        ),
    )


def _replay(folders: Sequence[TraceFolder], gang: int, rules: Rules) -> list[PolicyRun]:
    all_runs: list[PolicyRun] = []
    for folder in folders:
        if not any(any(zone) for zone in folder.capacity):
            print_progress(f"{folder.name}: never {gang} at once; left out")
            continue
        runs = list(lives(folder, rules))
        missing = [d for d in DEADLINES if not any(run.deadline == d for run in runs)]
        if missing:
            print_progress(
                f"{folder.name}: no room for deadlines {missing}; lower or raise --hours"
            )
        all_runs += runs
    if not all_runs:
        raise BadTrace("no trace is long enough or ever has the gang. Lower --hours or --gang.")
    return all_runs


def _measures(runs: Sequence[PolicyRun], deadline: float) -> list[Measure]:
    cost = {p: _mean(runs, deadline, p) for p in (REKINDLE, ORACLE, *RIVALS, *OTHERS)}
    own_cost = cost[REKINDLE]
    if own_cost is None:
        return []
    against = {p: _ratio(c, cost[ORACLE]) for p, c in cost.items() if p not in (REKINDLE, ORACLE)}
    late = {p: _late_share(runs, deadline, p) for p in RIVALS}
    return [
        Measure(
            name=f"cost_to_oracle_{deadline}",
            value=_ratio(own_cost, cost[ORACLE]),
            unit="times",
            bar=BAR if deadline >= 1.25 else None,
            limit=1.0,
            rivals={p: r for p, r in against.items() if r is not None},
        ),
        _rival_measure(runs, deadline, "up", "uniform_progress"),
        _rival_measure(runs, deadline, "greedy", "greedy"),
        Measure(
            name=f"late_pct_{deadline}",
            value=_late_share(runs, deadline, REKINDLE),
            unit="%",
            bar=0.0,
            limit=0.0,
            rivals=late,
        ),
    ]


def _rival_measure(runs: Sequence[PolicyRun], deadline: float, short: str, rival: str) -> Measure:
    value = _ratio(_mean(runs, deadline, REKINDLE), _mean(runs, deadline, rival))
    return Measure(name=f"cost_to_{short}_{deadline}", value=value, unit="times", bar=1.0)


def _coverage_measures(lives: int, seed: int) -> list[Measure]:
    """Return the coverage of the 80 % intervals; good values are 75 to 85 %."""
    forecasts, (paid, ended) = coverage(lives, seed), live_coverage(lives, seed)
    values = (
        ("live_forecast_coverage_pct", paid),
        ("live_finish_coverage_pct", ended),
        ("forecast_coverage_pct", forecasts.dollars_pct),
        ("forecast_time_coverage_pct", forecasts.seconds_pct),
    )
    return [
        Measure(name=name, value=value, unit="%", bar=75.0, limit=80.0, higher_is_better=True)
        for name, value in values
    ]


def _runs_of(runs: Sequence[PolicyRun], deadline: float, policy: str) -> list[PolicyRun]:
    return [run for run in runs if run.deadline == deadline and run.policy == policy]


def _mean(runs: Sequence[PolicyRun], deadline: float, policy: str) -> float | None:
    costs = [run.cost for run in _runs_of(runs, deadline, policy)]
    return statistics.fmean(costs) if costs else None


def _late_share(runs: Sequence[PolicyRun], deadline: float, policy: str) -> float | None:
    late = [run.late for run in _runs_of(runs, deadline, policy)]
    return round(100 * statistics.fmean(late), 2) if late else None


def _ratio(a: float | None, b: float | None) -> float | None:
    return None if a is None or not b else round(a / b, 4)


def _columns(runs: Sequence[PolicyRun]) -> list[str]:
    return [p for p in (REKINDLE, *OTHERS, *RIVALS, ORACLE) if any(run.policy == p for run in runs)]


def _groups(runs: Sequence[PolicyRun]) -> list[tuple[str, str, float]]:
    return sorted({(run.folder, run.zones, run.deadline) for run in runs})


def _rows(all_runs: Sequence[PolicyRun]) -> list[list[object]]:
    """Return table rows: mean cost / 95th percentile, and the percentage of late runs if any."""
    rows: list[list[object]] = []
    for group in _groups(all_runs):
        runs = [run for run in all_runs if (run.folder, run.zones, run.deadline) == group]
        rows.append([*group, *(_cell(runs, p) for p in _columns(all_runs))])
    return rows


def _cell(all_runs: Sequence[PolicyRun], policy: str) -> str:
    runs = [run for run in all_runs if run.policy == policy]
    if not runs:
        return "-"
    costs = [run.cost for run in runs]
    late = 100 * statistics.fmean(run.late for run in runs)
    text = f"{statistics.fmean(costs):.3f}/{report.percentile(costs, 95):.2f}"
    return text + (f" {late:.0f}% late" if late else "")


def _plain(all_runs: Sequence[PolicyRun]) -> list[dict[str, object]]:
    plain: list[dict[str, object]] = []
    for folder, zones, deadline in _groups(all_runs):
        for policy in _columns(all_runs):
            runs = [
                run
                for run in _runs_of(all_runs, deadline, policy)
                if (run.folder, run.zones) == (folder, zones)
            ]
            if runs:
                plain.append(
                    {
                        "folder": folder,
                        "zones": zones,
                        "deadline": deadline,
                        "policy": policy,
                        "lives": len(runs),
                        "mean": round(statistics.fmean(run.cost for run in runs), 4),
                        "p95": report.rounded(report.percentile([x.cost for x in runs], 95), 4),
                        "late_pct": round(100 * statistics.fmean(x.late for x in runs), 2),
                    }
                )
    return plain


if __name__ == "__main__":
    sys.exit(main())
