/** Options of a plan by time and cost, with the limits as lines. */

import { useEffect, useRef, useState } from "react";
import { duration, money } from "../../format";
import { capacityOf, keeps, machinesOf, type PlanOption, type Verdict } from "./plan";
import styles from "./plan.module.css";

export interface PlottedOption {
  option: PlanOption;
  verdict: Verdict;
  isChosen: boolean;
}

interface PlanPlotProps {
  options: readonly PlottedOption[];
  budget: number | null; // US dollars
  left: number | null; // seconds until the deadline
}

const HEIGHT = 260;
const PAD = { left: 58, right: 16, top: 14, bottom: 36 };

export function PlanPlot({ options, budget, left }: PlanPlotProps) {
  const [box, width] = useWidth();
  const most = scaleEnds(options);
  const inner = {
    width: Math.max(width - PAD.left - PAD.right, 50),
    height: HEIGHT - PAD.top - PAD.bottom,
  };
  const x = (seconds: number) =>
    PAD.left + (Math.min(seconds, most.seconds) / most.seconds) * inner.width;
  const y = (cost: number) => PAD.top + (1 - Math.min(cost, most.cost) / most.cost) * inner.height;
  const chosen = options.find((one) => one.isChosen);

  return (
    <div ref={box} className={styles.plot}>
      <svg
        width={width}
        height={HEIGHT}
        role="img"
        aria-label={`${options.length} options by time and cost; the table below has the figures${
          chosen === undefined ? "" : `. Chosen: ${nameOf(chosen.option)}`
        }`}
      >
        <Axes x={x} y={y} most={most} inner={inner} />
        {left !== null && left < most.seconds && (
          <g className={styles.limit}>
            <rect
              x={x(Math.max(left, 0))}
              y={PAD.top}
              width={PAD.left + inner.width - x(Math.max(left, 0))}
              height={inner.height}
            />
            <line
              x1={x(Math.max(left, 0))}
              x2={x(Math.max(left, 0))}
              y1={PAD.top}
              y2={PAD.top + inner.height}
            />
          </g>
        )}
        {budget !== null && budget < most.cost && (
          <g className={styles.limit}>
            <rect x={PAD.left} y={PAD.top} width={inner.width} height={y(budget) - PAD.top} />
            <line x1={PAD.left} x2={PAD.left + inner.width} y1={y(budget)} y2={y(budget)} />
          </g>
        )}
        {[...options].reverse().map((one) => (
          <Point key={keyOf(one.option)} {...one} x={x} y={y} />
        ))}
      </svg>
      <PlotKey />
    </div>
  );
}

function PlotKey() {
  const marks = [
    [styles.chosen, "chosen", false],
    ["", "keeps the limits", false],
    [styles.refused, "does not", false],
    ["", "on demand", true],
  ] as const;
  return (
    <p className={`${styles.key} small muted`}>
      {marks.map(([state, text, isSquare]) => (
        <span key={text}>
          <svg width={14} height={14} aria-hidden="true">
            <g className={`${styles.point} ${state}`}>
              {isSquare ? (
                <rect x={2} y={2} width={10} height={10} />
              ) : (
                <circle cx={7} cy={7} r={5} />
              )}
            </g>
          </svg>
          {text}
        </span>
      ))}
      <span>lines reach to the time and budget that nine in ten need</span>
    </p>
  );
}

type Scale = (value: number) => number;

function Point({ option, verdict, isChosen, x, y }: PlottedOption & { x: Scale; y: Scale }) {
  const at = [x(option.duration_p50), y(Number(option.cost_p50))] as const;
  const state = isChosen ? styles.chosen : keeps(verdict) ? "" : styles.refused;
  return (
    <g className={`${styles.point} ${state}`} data-keeps={keeps(verdict)}>
      <title>{describe(option)}</title>
      <path
        d={`M${at[0]} ${at[1]} H${x(option.seconds_needed)} M${at[0]} ${at[1]} V${y(Number(option.budget_needed))}`}
      />
      {option.capacity_type === "spot" ? (
        <circle cx={at[0]} cy={at[1]} r={isChosen ? 7 : 5} />
      ) : (
        <rect x={at[0] - 5} y={at[1] - 5} width={10} height={10} />
      )}
    </g>
  );
}

interface AxesProps {
  x: Scale;
  y: Scale;
  most: { seconds: number; cost: number };
  inner: { width: number; height: number };
}

function Axes({ x, y, most, inner }: AxesProps) {
  const bottom = PAD.top + inner.height;
  return (
    <g className={styles.axes}>
      {ticks(most.cost, 4).map((cost) => (
        <g key={cost}>
          <line x1={PAD.left} x2={PAD.left + inner.width} y1={y(cost)} y2={y(cost)} />
          <text x={PAD.left - 8} y={y(cost) + 4} textAnchor="end">
            {money(cost)}
          </text>
        </g>
      ))}
      {timeTicks(most.seconds, inner.width < 400 ? 3 : 6).map((seconds) => (
        <text key={seconds} x={x(seconds)} y={bottom + 16} textAnchor="middle">
          {seconds === 0 ? "0" : duration(seconds)}
        </text>
      ))}
      <text x={PAD.left + inner.width} y={bottom + 32} textAnchor="end">
        time until the model is ready
      </text>
    </g>
  );
}

function scaleEnds(options: readonly PlottedOption[]): { seconds: number; cost: number } {
  return {
    seconds: 1.15 * Math.max(1, ...options.map((one) => one.option.seconds_needed)),
    cost: 1.15 * Math.max(0.01, ...options.map((one) => Number(one.option.budget_needed))),
  };
}

/** Round values from 0 up to `most`, about `count` of them. */
function ticks(most: number, count: number): number[] {
  const rough = most / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough) ?? 10) * power;
  return upTo(most, step);
}

const TIME_STEPS = [
  10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 28800, 86400, 172800, 604800,
];

function timeTicks(most: number, count: number): number[] {
  const rough = most / count;
  return upTo(most, TIME_STEPS.find((step) => step >= rough) ?? Math.ceil(rough / 86400) * 86400);
}

function upTo(most: number, step: number): number[] {
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, at) => at * step);
}

export function keyOf(option: PlanOption): string {
  const {
    region,
    vm_size,
    capacity_type,
    engine,
    nodes,
    zero_stage,
    micro_batch,
    processes_per_node,
  } = option;
  return [
    region,
    vm_size,
    capacity_type,
    engine,
    nodes,
    processes_per_node,
    zero_stage,
    micro_batch,
  ].join(" ");
}

function nameOf(option: PlanOption): string {
  return `${machinesOf(option)} in ${option.region}, ${capacityOf(option)}`;
}

function describe(option: PlanOption): string {
  return `${nameOf(option)}: ${money(option.cost_p50)}, ${duration(option.duration_p50)}; nine in ten: ${money(
    option.cost_p90,
  )}, ${duration(option.duration_p90)}`;
}

/** The width of an element, as it changes. */
function useWidth(): [React.RefObject<HTMLDivElement | null>, number] {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(600);
  useEffect(() => {
    const element = box.current;
    if (element === null) return;
    const measure = () => setWidth(element.clientWidth || 600);
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return [box, width];
}
