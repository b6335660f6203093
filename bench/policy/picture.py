"""Picture of cost against deadline as SVG, with one panel per folder and number of zones."""

import statistics
from collections.abc import Sequence
from pathlib import Path

from bench.policy.lives import DEADLINES, ORACLE, REKINDLE, PolicyRun

_COLOURS = {
    REKINDLE: "#d62728",
    ORACLE: "#222222",
    "uniform_progress": "#1f77b4",
    "greedy": "#2ca02c",
    "skynomad": "#9467bd",
}


def draw(all_runs: Sequence[PolicyRun], path: Path, *, gang: int) -> None:
    """Write the picture to ``path``."""
    import matplotlib as mpl  # noqa: PLC0415 - only for who wants a picture

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    panels = sorted({(run.folder, run.zones) for run in all_runs})
    across = min(len(panels), 3)
    down = -(-len(panels) // across)
    figure, grid = plt.subplots(down, across, figsize=(4 * across, 3 * down), squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    for axes, (folder, zones) in zip(grid.flat, panels, strict=False):
        runs = [run for run in all_runs if (run.folder, run.zones) == (folder, zones)]
        for policy, colour in _COLOURS.items():
            style = "--" if policy == ORACLE else "-"
            axes.plot(*_curve(runs, policy), style, color=colour, marker=".", label=policy)
        axes.set_title(
            f"{folder}, gang of {gang}, {zones} zone{'s' * (zones == 'all')}", fontsize=8
        )
        axes.set_xlabel("deadline / hours of work", fontsize=8)
        axes.set_ylabel("cost / on demand", fontsize=8)
        axes.tick_params(labelsize=7)
        axes.grid(alpha=0.3)
    grid.flat[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _curve(runs: Sequence[PolicyRun], policy: str) -> tuple[list[float], list[float]]:
    costs_by_deadline = {
        d: [run.cost for run in runs if (run.deadline, run.policy) == (d, policy)]
        for d in DEADLINES
    }
    means = {d: statistics.fmean(costs) for d, costs in costs_by_deadline.items() if costs}
    return list(means), list(means.values())
