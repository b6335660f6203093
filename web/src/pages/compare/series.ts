/** Curves of several jobs over one axis. Pure: metrics in, aligned values out. */

import type { Schemas } from "../../api/client";
import type { Line } from "../../components/chart";
import { compact, decimal, duration, integer } from "../../format";

export type MetricRow = Schemas["MetricRow"];
export type Axis = "step" | "tokens" | "time";

export const AXES: Record<Axis, { label: string; format: (value: number) => string }> = {
  step: { label: "Step", format: integer },
  tokens: { label: "Trained tokens", format: compact },
  time: { label: "Training time", format: duration },
};

export interface Run {
  id: string;
  name: string;
  color: string;
  dash: boolean;
  rows: readonly MetricRow[];
}

export interface Figure {
  name: string;
  label: string;
  of: (row: MetricRow) => number | null;
  format: (value: number) => string;
  isSmooth?: boolean; // by nature: smoothing does not change it
  points?: boolean;
}

export const FIGURES: readonly Figure[] = [
  { name: "loss", label: "Training loss", of: (row) => row.loss, format: decimal },
  {
    name: "valid_loss",
    label: "Validation loss",
    of: (row) => row.valid_loss,
    format: decimal,
    isSmooth: true,
    points: true,
  },
  { name: "reward", label: "Reward", of: (row) => row.reward, format: decimal },
  { name: "margin", label: "Margin", of: (row) => row.margin, format: decimal },
  { name: "kl", label: "KL from the base model", of: (row) => row.kl, format: decimal },
  {
    name: "learning_rate",
    label: "Learning rate",
    of: (row) => row.learning_rate,
    format: (value) => decimal(value, 2),
    isSmooth: true,
  },
  { name: "speed", label: "Tokens per second", of: speed, format: compact },
];

function speed(row: MetricRow): number | null {
  return row.tokens !== null && row.seconds ? row.tokens / row.seconds : null;
}

/**
 * Where each row stands on the axis. A row of a thinned series stands for the steps since the row
 * before it, so that tokens and time are estimates there.
 */
export function positions(rows: readonly MetricRow[], axis: Axis): number[] {
  if (axis === "step") return rows.map((row) => row.step);
  let total = 0;
  let before = (rows[0]?.step ?? 1) - 1;
  return rows.map((row) => {
    total += (row.step - before) * ((axis === "tokens" ? row.tokens : row.seconds) ?? 0);
    before = row.step;
    return total;
  });
}

/** Exponential moving average without the bias of its start; null stays null. */
export function smoothed(values: readonly (number | null)[], weight: number): (number | null)[] {
  let sum = 0;
  let share = 0;
  return values.map((value) => {
    if (value === null) return null;
    sum = weight * sum + (1 - weight) * value;
    share = weight * share + (1 - weight);
    return sum / share;
  });
}

export interface Curves {
  x: number[];
  lines: Line[];
}

/** One figure of every run, on the x values of all runs together. */
export function curves(
  runs: readonly Run[],
  figure: Figure,
  axis: Axis,
  smoothing: number,
): Curves {
  const placed = runs.map((run) => ({ run, at: positions(run.rows, axis) }));
  const x = [...new Set(placed.flatMap(({ at }) => at))].sort((a, b) => a - b);
  const index = new Map(x.map((value, place) => [value, place]));
  const aligned = (at: readonly number[], values: readonly (number | null)[]) => {
    const line = new Array<number | null>(x.length).fill(null);
    at.forEach((value, place) => {
      const to = index.get(value);
      const measured = values[place] ?? null;
      if (to !== undefined && measured !== null) line[to] = measured;
    });
    return line;
  };
  const isSmoothed = smoothing > 0 && !figure.isSmooth;
  const lines = placed.flatMap(({ run, at }): Line[] => {
    const raw = run.rows.map(figure.of);
    if (raw.every((value) => value === null)) return [];
    const style = { color: run.color, dash: run.dash, points: figure.points };
    if (!isSmoothed) return [{ ...style, label: run.name, values: aligned(at, raw) }];
    return [
      { ...style, label: `${run.name}, raw`, values: aligned(at, raw), faint: true },
      { ...style, label: run.name, values: aligned(at, smoothed(raw, smoothing)) },
    ];
  });
  return { x, lines };
}

/** The figures that at least one run has measured. */
export function figuresOf(runs: readonly Run[]): readonly Figure[] {
  return FIGURES.filter((figure) =>
    runs.some((run) => run.rows.some((row) => figure.of(row) !== null)),
  );
}
