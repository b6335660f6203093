"""Plot the loss of the demo with its evictions."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("agg")  # before pyplot is imported: there may be no display
from matplotlib import pyplot as plt

Curve = Sequence[tuple[int, float]]


def draw_losses(
    evicted: Curve,
    twin: Curve,
    validation: Curve,
    evictions: Sequence[tuple[int, str]],
    path: Path,
) -> Path:
    """Write a PNG or SVG with the losses over training steps and a line for each eviction."""
    figure, axes = plt.subplots(figsize=(9, 4.5), layout="constrained")
    axes.plot(*zip(*twin, strict=True), color="0.75", linewidth=5, label="uninterrupted twin")
    axes.plot(*zip(*evicted, strict=True), color="tab:blue", linewidth=1.5, label="evicted job")
    axes.plot(*zip(*validation, strict=True), color="tab:green", marker="o", label="validation")
    for number, (step, description) in enumerate(evictions):
        axes.axvline(
            step, color="tab:red", linestyle=("--", ":")[number % 2], label=f"evicted {description}"
        )
    axes.set(xlabel="training step", ylabel="loss", title="Evicted and resumed bit-exactly")
    axes.legend(frameon=False)
    axes.grid(alpha=0.3)
    with plt.rc_context({"svg.fonttype": "none"}):  # text stays text
        figure.savefig(path, dpi=120)
    plt.close(figure)
    return path
