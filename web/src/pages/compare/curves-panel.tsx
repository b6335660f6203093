/** The curves of the chosen jobs, one chart a figure, with one cursor for all. */

import { useDeferredValue, useMemo, useState } from "react";
import { Chart } from "../../components/chart";
import { Panel } from "../../components/panel";
import { Empty } from "../../components/states";
import styles from "./compare.module.css";
import { AXES, type Axis, curves, type Figure, figuresOf, type Run } from "./series";

export function CurvesPanel({ runs }: { runs: readonly Run[] }) {
  const [axis, setAxis] = useState<Axis>("step");
  const [smoothing, setSmoothing] = useState(0.6);
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set());
  const visible = useMemo(() => runs.filter((run) => !hidden.has(run.id)), [runs, hidden]);
  const figures = figuresOf(runs);
  const settled = useDeferredValue(smoothing);

  function toggle(id: string) {
    const next = new Set(hidden);
    if (!next.delete(id)) next.add(id);
    setHidden(next);
  }

  return (
    <>
      <div className={styles.controls}>
        <Legend runs={runs} hidden={hidden} onToggle={toggle} />
        <label className={styles.axis}>
          Over
          <select value={axis} onChange={(event) => setAxis(event.target.value as Axis)}>
            {Object.entries(AXES).map(([name, { label }]) => (
              <option key={name} value={name}>
                {label.toLowerCase()}
              </option>
            ))}
          </select>
        </label>
        <label className={styles.smoothing}>
          Smoothing
          <input
            type="range"
            min={0}
            max={0.99}
            step={0.01}
            value={smoothing}
            onChange={(event) => setSmoothing(Number(event.target.value))}
          />
          <span className="num">{smoothing.toFixed(2)}</span>
        </label>
      </div>
      <div className="grid">
        {figures.map((figure) => (
          <Panel key={figure.name} title={figure.label} span={6}>
            <FigureChart runs={visible} figure={figure} axis={axis} smoothing={settled} />
          </Panel>
        ))}
        {figures.length === 0 && (
          <Panel title="Curves">
            <Empty title="No step is measured yet">
              <p>The curves begin with the first training step of these jobs.</p>
            </Empty>
          </Panel>
        )}
      </div>
    </>
  );
}

interface FigureChartProps {
  runs: readonly Run[];
  figure: Figure;
  axis: Axis;
  smoothing: number;
}

function FigureChart({ runs, figure, axis, smoothing }: FigureChartProps) {
  const { x, lines } = useMemo(
    () => curves(runs, figure, axis, smoothing),
    [runs, figure, axis, smoothing],
  );
  return (
    <Chart
      label={`${figure.label} by ${AXES[axis].label.toLowerCase()}`}
      x={x}
      lines={lines}
      sync="compare"
      format={figure.format}
      xLabel={AXES[axis].label}
      formatX={AXES[axis].format}
    />
  );
}

interface LegendProps {
  runs: readonly Run[];
  hidden: ReadonlySet<string>;
  onToggle: (id: string) => void;
}

function Legend({ runs, hidden, onToggle }: LegendProps) {
  return (
    <fieldset className={styles.legend}>
      <legend className="visually-hidden">Shown jobs</legend>
      {runs.map((run) => (
        <button
          key={run.id}
          type="button"
          aria-pressed={!hidden.has(run.id)}
          onClick={() => onToggle(run.id)}
        >
          <Swatch run={run} />
          {run.name}
        </button>
      ))}
    </fieldset>
  );
}

/** The line of a job: its colour, dashed from the seventh job on. */
export function Swatch({ run }: { run: { color: string; dash: boolean } }) {
  return (
    <i
      className={`${styles.swatch} ${run.dash ? styles.dashed : ""}`}
      style={{ "--c": `var(--${run.color})` } as React.CSSProperties}
    />
  );
}
