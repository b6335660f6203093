/** Lines over a common axis with uPlot: several charts may share their cursor. */

import { useEffect, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { decimal } from "../format";
import { token } from "../theme";
import styles from "./chart.module.css";

export interface Line {
  label: string;
  values: (number | null)[];
  color: string; // a design token, for example "series-1"
  points?: boolean; // dots for few values
  dash?: boolean;
  faint?: boolean; // behind another line, and not in the legend
  steps?: boolean; // each value holds until the next one, and a null is a gap
}

/** A stretch of the axis in a colour of its own; a mark where both ends are equal. */
export interface Band {
  from: number;
  to: number;
  color: string;
  label: string;
}

interface ChartProps {
  label: string; // for screen readers, and above the chart
  x: number[];
  lines: Line[];
  bands?: Band[];
  height?: number;
  sync?: string; // charts with the same key share cursor and zoom
  time?: boolean; // the axis is Unix seconds
  format?: (value: number) => string;
  xLabel?: string; // default: "Step", or "Time"
  formatX?: (value: number) => string;
}

export function Chart({
  label,
  x,
  lines,
  bands = [],
  height = 220,
  sync,
  time,
  format = decimal,
  xLabel,
  formatX,
}: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const shown = useRef(bands);
  shown.current = bands;
  const shape = JSON.stringify([
    lines.map(({ label: l, color, dash, faint }) => [l, color, dash, faint]),
    height,
    sync,
    time,
    xLabel,
  ]);
  const data = [x, ...lines.map((line) => line.values)] as uPlot.AlignedData;
  const latest = useRef(data);
  latest.current = data;

  // biome-ignore lint/correctness/useExhaustiveDependencies: `shape` stands for the options
  useEffect(() => {
    const element = box.current;
    if (element === null) return;
    const draw = () => {
      plot.current?.destroy();
      plot.current = new uPlot(
        options({
          lines,
          height,
          sync,
          time,
          format,
          xLabel,
          formatX,
          width: element.clientWidth,
          bands: shown,
        }),
        latest.current,
        element,
      );
    };
    draw();
    const resize = new ResizeObserver(() => {
      plot.current?.setSize({ width: element.clientWidth, height });
    });
    resize.observe(element);
    window.addEventListener("themechange", draw);
    return () => {
      resize.disconnect();
      window.removeEventListener("themechange", draw);
      plot.current?.destroy();
      plot.current = null;
    };
  }, [shape]);

  useEffect(() => {
    const zoomed = plot.current !== null && isZoomed(plot.current);
    plot.current?.setData(data, !zoomed);
    if (zoomed) plot.current?.redraw();
  });

  const named = lines.filter((line) => !line.faint);
  const last = named.map(
    (line) => `${line.label} ${format(line.values.findLast((v) => v !== null) ?? Number.NaN)}`,
  );
  return (
    <figure className={styles.chart} aria-label={`${label}: ${last.join(", ")}`}>
      <div ref={box} className={styles.box} data-height={height} style={{ minHeight: height }} />
    </figure>
  );
}

function isZoomed(plot: uPlot): boolean {
  const xs = plot.data[0];
  const { min, max } = plot.scales.x ?? {};
  return min != null && max != null && (min > (xs[0] ?? min) || max < (xs.at(-1) ?? max));
}

interface Drawing extends Pick<ChartProps, "lines" | "sync" | "time" | "xLabel" | "formatX"> {
  height: number;
  width: number;
  format: (value: number) => string;
  bands: { current: Band[] };
}

// Times of 24 hours: the least distance of two ticks in seconds, their form, and what the second
// row says where year, month, day, hour or minute begin. 1: the second row comes below the first.
const DAY = "\n{D} {MMM}";
const TIMES: uPlot.Axis.Values = [
  [3600 * 24 * 365, "{YYYY}", null, null, null, null, null, null, 1],
  [3600 * 24 * 28, "{MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [3600 * 24, "{D} {MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [60, "{HH}:{mm}", DAY, null, DAY, null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", DAY, null, DAY, null, null, null, 1],
];

function options({
  lines,
  height,
  width,
  sync,
  time,
  format,
  xLabel,
  formatX,
  bands,
}: Drawing): uPlot.Options {
  const axis = {
    stroke: token("muted"),
    grid: { stroke: token("line"), width: 1 },
    ticks: { show: false },
  };
  const font = `11px ${getComputedStyle(document.body).fontFamily}`;
  return {
    width,
    height,
    cursor:
      sync === undefined ? {} : { sync: { key: sync, setSeries: false, scales: ["x", null] } },
    scales: { x: { time: time ?? false, range: (_, min, max) => around(min, max, time) } },
    axes: [
      {
        ...axis,
        font,
        size: time ? 40 : 28, // times have a second row, for the day or the year
        values: time ? TIMES : formatX && ((_, ticks) => ticks.map((tick) => formatX(tick))),
      },
      { ...axis, font, size: 56, values: (_, ticks) => ticks.map((tick) => format(tick)) },
    ],
    series: [
      {
        label: xLabel ?? (time ? "Time" : "Step"),
        value: time
          ? "{YYYY}-{MM}-{DD} {HH}:{mm}"
          : formatX && ((_, value) => (value === null ? "–" : formatX(value))),
      },
      ...lines.map((line) => ({
        label: line.label,
        stroke: token(line.color),
        width: 1.5,
        dash: line.dash ? [6, 4] : undefined,
        alpha: line.faint ? 0.25 : 1,
        class: line.faint ? "faint" : undefined,
        points: { show: line.points ?? false, size: 5, fill: token(line.color) },
        spanGaps: !line.steps,
        paths: line.steps ? uPlot.paths.stepped?.({ align: 1 }) : undefined,
        value: (_: uPlot, value: number | null) => (value === null ? "–" : format(value)),
      })),
    ],
    hooks: { drawClear: [(u) => drawBands(u, bands.current)] },
  };
}

/** The ends of the axis; uPlot draws years beside a single time. */
function around(min: number, max: number, time?: boolean): uPlot.Range.MinMax {
  const margin = time ? 1_800 : 1;
  return min === max && min !== null ? [min - margin, max + margin] : [min, max];
}

function drawBands(u: uPlot, bands: Band[]): void {
  const { left, top, width, height } = u.bbox;
  u.ctx.save();
  u.ctx.beginPath();
  u.ctx.rect(left, top, width, height);
  u.ctx.clip();
  u.ctx.font = `${11 * devicePixelRatio}px ${getComputedStyle(document.body).fontFamily}`;
  u.ctx.textBaseline = "top";
  u.ctx.textAlign = "left"; // uPlot's axes leave another one
  const ends: number[] = []; // of the last label in each row, so that labels never overlap
  for (const band of bands) {
    const from = u.valToPos(band.from, "x", true);
    const to = Math.max(u.valToPos(band.to, "x", true), from + 2 * devicePixelRatio);
    u.ctx.globalAlpha = 0.28;
    u.ctx.fillStyle = token(band.color);
    u.ctx.fillRect(from, top, to - from, height);
    u.ctx.globalAlpha = 1;
    if (band.label !== "") {
      u.ctx.fillStyle = token("muted");
      const start = to + 4 * devicePixelRatio;
      const free = ends.findIndex((end) => end < start);
      const row = free === -1 ? ends.length : free;
      u.ctx.fillText(band.label, start, top + (2 + 14 * row) * devicePixelRatio);
      ends[row] = start + u.ctx.measureText(band.label).width + 6 * devicePixelRatio;
    }
  }
  u.ctx.restore();
}
